// The 41 numbers that Fluxion's predictor sees of a query head (Fluxion Table 1 and appendix A.1), as far as a step has
// to compute them: eleven of them, from its query and from attention over what the device holds. The others are known
// since the prompt.
#pragma once

#include <cstdint>

#include "engine/device/cuda/runtime.h"  // CudaStream

namespace tandem {

inline constexpr int kFeatures = 41;

/// Columns of a feature vector. k and v are the KV head's keys and values; |x| is the Euclidean norm; "mean, variance,
/// ..." are four columns from the named one on.
enum Feature : std::uint8_t {
  // structure
  kLayerIndex,
  kHeadIndex,
  kHostTokens,    // step
  kDeviceTokens,  // step
  // keys and values
  kSinkKeyNorm,  // mean of |k| over the sinks
  kSinkValueNorm,
  kMeanKeyNorm,  // |mean of k| over the host
  kMeanValueNorm,
  kKeyNorms,                     // mean, variance, skewness, kurtosis of |k|
  kValueNorms = kKeyNorms + 4,   // of |v|
  kMeanScore = kValueNorms + 4,  // step: q.mean(k) / (|q| sqrt(D))
  kScores,                       // mean, variance, skewness, kurtosis of z = q'.k / (|q'| sqrt(D))
  // what the segments contribute
  kSinkLse = kScores + 4,  // step
  kHostLse,   // step: log L + |q| mu + |q|^2 sigma^2 / 2, mu this step's kMeanScore, sigma^2 the variance of z
  kLocalLse,  // step
  kAnchorSinkLse,
  kAnchorHostLse,
  kAnchorLocalLse,
  kSinkOutput,   // step: |o| over the sinks alone
  kLocalOutput,  // step
  kAnchorSinkOutput,
  kAnchorHostOutput,
  kAnchorLocalOutput,
  // queries
  kQueryNorm,  // step
  kAnchorNorm,
  kCosine,  // step: of q and q'
  // budgets under the anchor at 16, 32, 64, 128 tokens
  kAnchorBudgets,
  // over the layer's query heads: the largest |o| over the device's tokens
  kLargestOutput = kAnchorBudgets + 4,  // step
  kLargestAnchorOutput,
};
static_assert(kLargestAnchorOutput + 1 == kFeatures);

/// An empty segment (no sinks) has this instead of -infinity.
inline constexpr float kEmptyLse = -1e4f;

struct HeadShape {
  std::uint32_t q_heads = 0, kv_heads = 0, dim = 0;
};

/// One layer and step of one sequence. The partial results are softmax-normalised, each over its own tokens; lse is the
/// natural logarithm of the sum of e^(q.k / sqrt(D)).
struct StepFeatures {
  // From the prefill.
  const float* known = nullptr;     // [Hq][kFeatures]; what it has in the columns marked `step` is not read
  const float* anchor = nullptr;    // [Hq][D], the query of the last prefill token
  const float* mean_key = nullptr;  // [Hkv][D], over the host's tokens
  // The step's.
  std::uint32_t host_tokens = 0;     // now
  std::uint32_t device_tokens = 0;   // sinks, local and new ones, the step's own included
  const float* q = nullptr;          // [Hq][D], after RoPE
  const float* sink_o = nullptr;     // [Hq][D]
  const float* sink_lse = nullptr;   // [Hq]
  const float* local_o = nullptr;    // [Hq][D], over the window, without newer tokens
  const float* local_lse = nullptr;  // [Hq]
  const float* device_o = nullptr;   // [Hq][D], over everything that the device holds: sinks, local and new ones merged
  float* out = nullptr;              // [Hq][kFeatures]
};
/// In double precision; a query of zeros makes ratios 0. All features are finite for finite input.
void step_features(const StepFeatures& step, const HeadShape& shape);

/// The same on the GPU for the sequences of a batch. The list and all that it names are device memory.
void step_features_cuda(const StepFeatures* steps /*[n]*/, std::uint32_t n, const HeadShape& shape, CudaStream stream);

}  // namespace tandem
