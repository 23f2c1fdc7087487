#include "engine/kernels/cuda/launch.cuh"
#include "engine/mechanisms/residency/kernels/residency.h"
#include "engine/mechanisms/residency/kernels/residency_kernels.cuh"

namespace tandem {

void split_residents_cuda(const LaunchArray<ResidentSplit>& lists, std::uint32_t count, CudaStream stream) {
  gpu::Launcher launch(stream);
  launch(gpu::split_residents_kernel, count, gpu::kResidencyThreads, 0, lists);
}

void swap_residents_cuda(const LaunchArray<ResidentSwap>& lists, std::uint32_t count, CudaStream stream) {
  gpu::Launcher launch(stream);
  launch(gpu::swap_residents_kernel, count, gpu::kResidencyThreads, 0, lists);
}

}  // namespace tandem
