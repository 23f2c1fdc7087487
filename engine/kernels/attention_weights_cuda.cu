// Averages of attention weights.
#include <algorithm>

#include "engine/kernels/attention_weights.h"
#include "engine/kernels/cuda/launch.cuh"

namespace tandem::gpu {

constexpr unsigned kWeightThreads = 256;

/// A token per thread. Grid: {ceil(most / kWeightThreads), blends}.
__global__ void __launch_bounds__(kWeightThreads)
    blend_weights_kernel(const __grid_constant__ LaunchArray<WeightBlend> blends, std::uint32_t first, float keep,
                         float share) {
  const WeightBlend blend = blends[first + blockIdx.y];
  const std::uint32_t token = blockIdx.x * kWeightThreads + threadIdx.x;
  if (token >= blend.n) return;
  float average = token >= blend.n - blend.fresh ? 0.0f : blend.average[token];
  for (std::uint32_t query = 0; query < blend.queries; ++query) {
    const float score = blend.scores[query * blend.stride + token], lse = blend.lse[query];
    const float nothing = -__builtin_huge_valf();
    const float weight = score == nothing || lse == nothing ? 0.0f : expf(score - lse);
    average = fmaf(share, weight, keep * average);
  }
  blend.average[token] = average;
}

/// A block per row.
__global__ void __launch_bounds__(kWeightThreads)
    log_sum_exp_kernel(const __grid_constant__ LaunchArray<ScoreRow> rows) {
  TANDEM_SHARED(float, scratch, kWarp);
  const ScoreRow row = rows[blockIdx.x];
  float most = -__builtin_huge_valf();
  for (std::uint32_t i = threadIdx.x; i < row.n; i += kWeightThreads) most = fmaxf(most, row.scores[i]);
  most = block_max(most, scratch);
  float sum = 0.0f;
  if (most != -__builtin_huge_valf()) {
    for (std::uint32_t i = threadIdx.x; i < row.n; i += kWeightThreads) sum += expf(row.scores[i] - most);
  }
  sum = block_sum(sum, scratch);
  if (threadIdx.x == 0) *row.lse = sum == 0.0f ? -__builtin_huge_valf() : most + logf(sum);
}

}  // namespace tandem::gpu

namespace tandem {
using namespace gpu;

void blend_weights_cuda(const LaunchArray<WeightBlend>& blends, std::uint32_t count, std::uint32_t most, float keep,
                        float share, CudaStream stream) {
  for (std::uint32_t first = 0; first < count; first += kMaxGridRows) {
    launch(stream, blend_weights_kernel, dim3(blocks_for(most, kWeightThreads), std::min(count - first, kMaxGridRows)),
           kWeightThreads, 0, blends, first, keep, share);
  }
}

void log_sum_exp_cuda(const LaunchArray<ScoreRow>& rows, std::uint32_t count, CudaStream stream) {
  launch(stream, log_sum_exp_kernel, count, kWeightThreads, 0, rows);
}

}  // namespace tandem
