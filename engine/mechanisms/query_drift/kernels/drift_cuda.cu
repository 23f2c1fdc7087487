#include "engine/kernels/cuda/launch.cuh"
#include "engine/mechanisms/query_drift/kernels/drift_kernels.cuh"

namespace tandem {

void part_by_drift_cuda(const LaunchArray<HeadDrift>& heads, std::uint32_t count, std::uint32_t group,
                        std::uint32_t dim, CudaStream stream) {
  gpu::Launcher launch(stream);
  launch(gpu::part_by_drift_kernel, count, gpu::kDriftThreads, 0, heads, group, dim);
}

}  // namespace tandem
