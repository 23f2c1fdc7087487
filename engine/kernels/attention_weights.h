// Attention weights of single tokens: averages that follow them through a decode, and the choice of the salient ones
// (HGCA, papers: section 3.2).
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/device/cuda/launch_array.h"
#include "engine/device/cuda/runtime.h"  // CudaStream

namespace tandem {

/// ln sum_t exp(scores[t]); -infinity for none.
float log_sum_exp(const float* scores /*[n]*/, std::size_t n);

/// average[t] = keep * average[t] + share * exp(scores[t] - lse): a weight of a softmax with this `lse` goes into a
/// moving average (keep = 1 - share) or into a mean (keep = 1). With an lse of -infinity all weights are 0, whatever
/// the scores. Bits of a token do not depend on its neighbours.
void blend_weights(const float* scores /*[n]*/, float lse, std::size_t n, float keep, float share,
                   float* average /*[n]*/);

/// masks[t]: bit g is set where averages[g][t] > threshold. Returns the number of tokens with a bit set.
std::uint32_t salient_masks(const float* averages /*[group][stride]*/, std::size_t stride, std::uint32_t n,
                            std::uint32_t group, float threshold, std::uint32_t* masks /*[n]*/);

// On the GPU, for many heads at once. All pointers are device memory.

/// Weights of `queries` queries that go into the averages of n tokens of one head. A ring that is entered in its middle
/// is two of them.
struct WeightBlend {
  const float* scores = nullptr;  // [queries][stride]
  const float* lse = nullptr;     // [queries]; a query of -infinity has no weights
  float* average = nullptr;       // [n]
  std::size_t stride = 0;
  std::uint32_t n = 0, queries = 1;
  std::uint32_t fresh = 0;  // of the last tokens: they have no average yet, whatever lies there
};
/// For each query in order: average[t] = keep * average[t] + share * exp(scores[query][t] - lse[query]). A decode
/// step's moving average has one query; with keep = 1 the queries' weights are summed (column sums). most: the largest
/// n.
void blend_weights_cuda(const LaunchArray<WeightBlend>& blends /*[count]*/, std::uint32_t count, std::uint32_t most,
                        float keep, float share, CudaStream stream);

/// lse = ln sum_t exp(scores[t]) of each row; -infinity for none.
struct ScoreRow {
  const float* scores = nullptr;  // [n]
  std::uint32_t n = 0;
  float* lse = nullptr;  // [1]
};
void log_sum_exp_cuda(const LaunchArray<ScoreRow>& rows /*[count]*/, std::uint32_t count, CudaStream stream);

}  // namespace tandem
