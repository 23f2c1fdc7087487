// Selection of the k best blocks, a block of threads per row.
#include "engine/common/error.h"
#include "engine/kernels/cuda/launch.cuh"
#include "engine/kernels/radix_select.cuh"
#include "engine/kernels/topk.h"

namespace tandem::gpu {

__global__ void __launch_bounds__(kSelectThreads)
    top_k_kernel(const __grid_constant__ LaunchArray<TopKRow> rows, std::uint32_t group) {
  TANDEM_SHARED(SelectScratch, scratch, 1);
  const TopKRow row = rows[blockIdx.x];
  const std::uint32_t kept = row.k < row.n ? row.k : row.n;
  if (row.k >= row.n) {
    if (threadIdx.x == 0) row.out[0] = kept;
    for (std::uint32_t i = threadIdx.x; i < row.n; i += kSelectThreads) row.out[1 + i] = i;
    return;
  }
  const auto key_of = [&row, group](std::uint32_t i) {
    if (i < row.first) return 0xffffffffu;
    float score = -__builtin_huge_valf();
    for (std::uint32_t g = 0; g < group; ++g) score = fmaxf(score, row.scores[std::size_t{g} * row.n + i]);
    return order_key(score);
  };
  list_best(key_of, row.n, kept, row.out, scratch[0]);
}

constexpr unsigned kReduceThreads = 256;

/// Grid: {blocks of the largest n, lists, rows}.
__global__ void __launch_bounds__(kReduceThreads)
    reduce_scores_kernel(const __grid_constant__ LaunchArray<ScoreReduction> rows, std::uint32_t heads,
                         std::uint32_t group, Reduce reduce) {
  const ScoreReduction row = rows[blockIdx.z];
  const std::uint32_t n = row.n, i = blockIdx.x * kReduceThreads + threadIdx.x;
  if (i >= n) return;
  const float* own = row.scores + std::size_t{blockIdx.y} * heads * group * n + i;
  float sum = 0.0f;
  for (std::uint32_t head = 0; head < heads; ++head) {
    if (reduce == Reduce::softmax_mean) {
      const float* const lse = row.lse + (std::size_t{blockIdx.y} * heads + head) * group;
      float most = -__builtin_huge_valf(), of_head = 0.0f;
      for (std::uint32_t g = 0; g < group; ++g) most = fmaxf(most, own[std::size_t{g} * n] - lse[g]);
      for (std::uint32_t g = 0; g < group; ++g, own += n) of_head += expf(*own - lse[g] - most);
      sum += most + logf(of_head / static_cast<float>(group));
      continue;
    }
    const bool mean = reduce == Reduce::mean;
    float of_head = *own;
    own += n;
    for (std::uint32_t g = 1; g < group; ++g, own += n) {
      const float score = *own;
      of_head = mean ? of_head + score : of_head < score ? score : of_head;
    }
    sum += mean ? of_head / static_cast<float>(group) : of_head;
  }
  row.out[std::size_t{blockIdx.y} * n + i] = sum;
}

}  // namespace tandem::gpu

namespace tandem {
using namespace gpu;

void top_k_cuda(const LaunchArray<TopKRow>& rows, std::uint32_t count, std::uint32_t group, CudaStream stream) {
  TANDEM_CHECK(group >= 1, "The best of a group of no heads.");
  launch(stream, top_k_kernel, count, kSelectThreads, 0, rows, group);
}

void reduce_scores_cuda(const LaunchArray<ScoreReduction>& rows, std::uint32_t count, std::uint32_t most_n,
                        const ReductionShape& shape, Reduce reduce, CudaStream stream) {
  TANDEM_CHECK(shape.group >= 1, "The scores of a group of no heads.");
  TANDEM_CHECK(count <= kMaxGridRows && shape.lists <= kMaxGridRows, "{} rows of {} lists of scores.", count,
               shape.lists);
  launch(stream, reduce_scores_kernel, dim3(blocks_for(most_n, kReduceThreads), shape.lists, count), kReduceThreads, 0,
         rows, shape.heads, shape.group, reduce);
}

}  // namespace tandem
