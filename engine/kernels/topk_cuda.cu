#include "engine/common/error.h"
#include "engine/kernels/cuda/launch.cuh"
#include "engine/kernels/topk.h"
#include "engine/kernels/topk_kernels.cuh"

namespace tandem {

void top_k_cuda(const TopKRow* rows, std::uint32_t count, std::uint32_t group, CudaStream stream) {
  TANDEM_CHECK(group >= 1, "The best of a group of no heads.");
  gpu::Launcher launch(stream);
  launch(gpu::top_k_kernel, count, gpu::kTopKThreads, 0, rows, group);
}

}  // namespace tandem
