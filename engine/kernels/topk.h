// Selection of the k best blocks.
#pragma once

#include <cstdint>

#include "engine/device/cuda/launch_array.h"
#include "engine/device/cuda/runtime.h"  // CudaStream

namespace tandem {

/// A KV head's score of a block, from those of its query heads. softmax_mean: the logarithm of the mean of their
/// softmaxes over all blocks, which ranks like the mean and does not underflow.
enum class Reduce : std::uint8_t { max, mean, softmax_mean };

/// Indices of the k largest scores in ascending index order; ties go to the lower index. k >= n selects all n. The
/// indices below `first` (at most k) are among them whatever their score. Linear time on average. NaN is as -infinity;
/// infinities are fine.
void top_k(const float* scores /*[n]*/, std::uint32_t n, std::uint32_t k, std::uint32_t* out /*[min(k, n)]*/,
           std::uint32_t first = 0);

/// Scores of what `heads` KV heads choose together: out[i] = the sum over them of what Reduce says of
/// their query heads' scores of i. In the order of the heads.
void reduce_scores(const float* scores /*[heads][group][n]*/, std::uint32_t heads, std::uint32_t group, std::uint32_t n,
                   Reduce reduce, float* out /*[n]*/);

/// One selection of a batch on the GPU. Device memory.
struct TopKRow {
  const float* scores = nullptr;  // [group][n]
  std::uint32_t n = 0, k = 0;
  std::uint32_t* out =
      nullptr;              // [1 + min(k, n)]: the count, then indices in ascending order (a BlockSelection's list)
  std::uint32_t first = 0;  // at most k
};
/// The same as top_k for every row, exactly. With group > 1 the score of an index is the largest of its `group` scores:
/// what a KV head selects for its query heads.
void top_k_cuda(const LaunchArray<TopKRow>& rows /*[count]*/, std::uint32_t count, std::uint32_t group,
                CudaStream stream);

/// A row of a batch whose scores are reduced. Device memory.
struct ScoreReduction {
  const float* scores = nullptr;  // [lists][heads][group][n]
  float* out = nullptr;           // [lists][n]
  std::uint32_t n = 0;
  const float* lse = nullptr;  // [lists][heads][group], of softmax_mean: log_sum_exp_cuda of the scores
};
struct ReductionShape {
  std::uint32_t lists = 1, heads = 1, group = 1;  // in each row; of a list; query heads of a KV head
};
/// reduce_scores of all lists of every row, most_n: the largest n of a row. rows and lists are at most 65535.
void reduce_scores_cuda(const LaunchArray<ScoreReduction>& rows /*[count]*/, std::uint32_t count, std::uint32_t most_n,
                        const ReductionShape& shape, Reduce reduce, CudaStream stream);

}  // namespace tandem
