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

void reduce_scores_cuda(const LaunchArray<ScoreReduction>& rows, std::uint32_t count, std::uint32_t most_n,
                        const ReductionShape& shape, Reduce reduce, CudaStream stream) {
  TANDEM_CHECK(shape.group >= 1, "The scores of a group of no heads.");
  TANDEM_CHECK(count <= gpu::kMaxGridRows && shape.lists <= gpu::kMaxGridRows, "{} rows of {} lists of scores.", count,
               shape.lists);
  gpu::Launcher launch(stream);
  launch(gpu::reduce_scores_kernel, dim3(gpu::blocks_for(most_n, gpu::kReduceThreads), shape.lists, count),
         gpu::kReduceThreads, 0, rows, shape.heads, shape.group, reduce);
}

}  // namespace tandem
