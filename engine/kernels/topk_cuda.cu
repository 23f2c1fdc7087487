#include "engine/common/error.h"
#include "engine/kernels/cuda/launch.cuh"
#include "engine/kernels/topk.h"
#include "engine/kernels/topk_kernels.cuh"

namespace tandem {

void top_k_cuda(const LaunchArray<TopKRow>& rows, std::uint32_t count, std::uint32_t group, CudaStream stream) {
  TANDEM_CHECK(group >= 1, "The best of a group of no heads.");
  gpu::Launcher launch(stream);
  launch(gpu::top_k_kernel, count, gpu::kSelectThreads, 0, rows, group);
}

void reduce_scores_cuda(const float* scores, std::uint32_t lists, std::uint32_t heads, std::uint32_t group,
                        std::uint32_t n, Reduce reduce, float* out, CudaStream stream) {
  TANDEM_CHECK(group >= 1, "The scores of a group of no heads.");
  TANDEM_CHECK(lists <= gpu::kMaxGridRows, "{} lists of scores.", lists);
  gpu::Launcher launch(stream);
  launch(gpu::reduce_scores_kernel, dim3(gpu::blocks_for(n, gpu::kReduceThreads), lists), gpu::kReduceThreads, 0,
         scores, heads, group, n, reduce == Reduce::mean, out);
}

}  // namespace tandem
