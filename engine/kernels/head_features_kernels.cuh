// A step's features, a warp per query head.
#pragma once

#include "engine/kernels/cuda/device.cuh"
#include "engine/kernels/head_features.h"

namespace tandem::gpu {

constexpr unsigned kFeatureThreads = 256;
constexpr unsigned kFeatureWarps = kFeatureThreads / kWarp;

/// Sum of a[i] b[i] in double precision, on every lane.
__device__ __forceinline__ double warp_dot(const float* a, const float* b, std::uint32_t n) {
  double sum = 0.0;
  for (std::uint32_t i = threadIdx.x % kWarp; i < n; i += kWarp)
    sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return warp_sum(sum);
}

/// A block per sequence.
inline __global__ void __launch_bounds__(kFeatureThreads)
    step_features_kernel(const StepFeatures* steps, const __grid_constant__ HeadShape shape) {
  TANDEM_SHARED(double, largest_of, kFeatureWarps);
  const StepFeatures& step = steps[blockIdx.x];
  const unsigned warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const std::uint32_t dim = shape.dim, group = shape.q_heads / shape.kv_heads;
  double largest = 0.0;
  for (std::uint32_t h = warp; h < shape.q_heads; h += kFeatureWarps) {
    const float* const o = step.device_o + std::size_t{h} * dim;
    const double length = sqrt(warp_dot(o, o, dim));
    largest = length > largest ? length : largest;
  }
  if (lane == 0) largest_of[warp] = largest;
  __syncthreads();
  for (unsigned w = 0; w < kFeatureWarps; ++w) largest = largest_of[w] > largest ? largest_of[w] : largest;
  for (std::uint32_t h = warp; h < shape.q_heads; h += kFeatureWarps) {
    const std::size_t at = std::size_t{h} * dim;
    const float* const known = step.known + std::size_t{h} * kFeatures;
    float* const row = step.out + std::size_t{h} * kFeatures;
    const float* const q = step.q + at;
    const double length = sqrt(warp_dot(q, q, dim)),
                 along = warp_dot(q, step.mean_key + h / group * std::size_t{dim}, dim);
    const double turned = warp_dot(q, step.anchor + at, dim);
    const double sinks = warp_dot(step.sink_o + at, step.sink_o + at, dim);
    const double local = warp_dot(step.local_o + at, step.local_o + at, dim);
    for (unsigned f = lane; f < kFeatures; f += kWarp) row[f] = known[f];
    __syncwarp();
    if (lane != 0) continue;
    const double below = length * sqrt(static_cast<double>(dim)), mean = below == 0.0 ? 0.0 : along / below;
    const double both = length * static_cast<double>(known[kAnchorNorm]);
    const double tokens = step.host_tokens > 1 ? step.host_tokens : 1;
    row[kHostTokens] = static_cast<float>(step.host_tokens);
    row[kDeviceTokens] = static_cast<float>(step.device_tokens);
    row[kMeanScore] = static_cast<float>(mean);
    row[kSinkLse] = fmaxf(step.sink_lse[h], kEmptyLse);
    row[kHostLse] = static_cast<float>(log(tokens) + length * mean +
                                       0.5 * length * length * static_cast<double>(known[kScores + 1]));
    row[kLocalLse] = fmaxf(step.local_lse[h], kEmptyLse);
    row[kSinkOutput] = static_cast<float>(sqrt(sinks));
    row[kLocalOutput] = static_cast<float>(sqrt(local));
    row[kQueryNorm] = static_cast<float>(length);
    row[kCosine] = static_cast<float>(both == 0.0 ? 0.0 : turned / both);
    row[kLargestOutput] = static_cast<float>(largest);
  }
}

}  // namespace tandem::gpu
