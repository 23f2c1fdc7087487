// Bias, QK-norm, rotary embedding and the store of K and V: a warp per head.
#include "engine/common/error.h"
#include "engine/kernels/cuda/launch.cuh"
#include "engine/kernels/qkv.h"
#include "engine/kernels/rope_device.cuh"

namespace tandem::gpu {

constexpr unsigned kQkvWarps = 8;
constexpr unsigned kMaxPairs = 128;

/// gridDim = (tokens, heads / kQkvWarps): q heads first, then those of k, then of v.
__global__ void __launch_bounds__(kQkvWarps* kWarp)
    prepare_qkv_kernel(const float* qkv, QkvShape shape, QkvWeights weights,
                       const __grid_constant__ LaunchArray<QkvToken> tokens, float* q, KvPlaces kv) {
  TANDEM_SHARED(float2, rotations, kMaxPairs);
  const std::uint32_t token = blockIdx.x, pairs = shape.head_dim / 2;
  const unsigned lane = threadIdx.x % kWarp;
  const QkvToken own = tokens[token];
  for (std::uint32_t i = threadIdx.x; i < pairs; i += blockDim.x)
    rotations[i] = rotation(weights.inverse_frequency[i], own.position, static_cast<float>(weights.scale));
  __syncthreads();
  const std::uint32_t head = blockIdx.y * kQkvWarps + threadIdx.x / kWarp;
  const std::uint32_t rotated = shape.q_heads + shape.kv_heads;
  if (head >= rotated + shape.kv_heads) return;

  const std::uint32_t columns = (rotated + shape.kv_heads) * shape.head_dim;
  const float* from = qkv + std::size_t{token} * columns + std::size_t{head} * shape.head_dim;
  const float* bias = weights.bias == nullptr ? nullptr : weights.bias + std::size_t{head} * shape.head_dim;
  constexpr unsigned kSteps = kMaxPairs / kWarp;
  float low[kSteps] = {}, high[kSteps] = {}, squares = 0;
#pragma unroll
  for (unsigned step = 0; step < kSteps; ++step) {
    const std::uint32_t i = step * kWarp + lane;
    if (i >= pairs) continue;
    low[step] = from[i] + (bias == nullptr ? 0.0f : bias[i]);
    high[step] = from[i + pairs] + (bias == nullptr ? 0.0f : bias[i + pairs]);
    squares += low[step] * low[step] + high[step] * high[step];
  }
  const bool is_q = head < shape.q_heads, is_v = head >= rotated;
  const void* const norm = is_q ? weights.q_norm.data : weights.k_norm.data;
  const DType norm_type = is_q ? weights.q_norm.type : weights.k_norm.type;
  const bool normed = !is_v && norm != nullptr;
  const float scale =
      normed ? 1.0f / sqrtf(warp_sum(squares) / static_cast<float>(shape.head_dim) + weights.eps) : 1.0f;

  char* to = nullptr;
  if (!is_q) {
    const std::uint32_t kv_head = is_v ? head - rotated : head - shape.q_heads;
    to = static_cast<char*>(is_v ? kv.v : kv.k) + own.kv_offset + kv_head * kv.head_stride;
  }
  float* const query = q + (std::size_t{token} * shape.q_heads + head) * shape.head_dim;
#pragma unroll
  for (unsigned step = 0; step < kSteps; ++step) {
    const std::uint32_t i = step * kWarp + lane;
    if (i >= pairs) continue;
    float a = low[step], b = high[step];
    if (normed) {
      a *= scale * load_1(norm, norm_type, i);
      b *= scale * load_1(norm, norm_type, i + pairs);
    }
    if (!is_v) {
      const float2 turn = rotations[i];
      const float turned = a * turn.x - b * turn.y;
      b = b * turn.x + a * turn.y;
      a = turned;
    }
    if (is_q) {
      query[i] = a;
      query[i + pairs] = b;
    } else {
      store_1(to, kv.type, i, a);
      store_1(to, kv.type, i + pairs, b);
    }
  }
}

}  // namespace tandem::gpu

namespace tandem {
using namespace gpu;

void prepare_qkv_cuda(const float* qkv, const QkvShape& shape, const QkvWeights& weights,
                      const LaunchArray<QkvToken>& tokens, float* q, const KvPlaces& kv, std::uint32_t n,
                      CudaStream stream) {
  TANDEM_CHECK(shape.head_dim % 2 == 0 && shape.head_dim <= 2 * kMaxPairs, "A head of {} elements.", shape.head_dim);
  TANDEM_CHECK(weights.inverse_frequency != nullptr, "No rotary frequencies.");
  for (const MatrixView& norm : {weights.q_norm, weights.k_norm})
    TANDEM_CHECK(!norm || norm.cols == shape.head_dim, "A norm of {} for heads of {}.", norm.cols, shape.head_dim);
  launch(stream, prepare_qkv_kernel, dim3(n, blocks_for(shape.q_heads + 2 * shape.kv_heads, kQkvWarps)),
         kQkvWarps * kWarp, 0, qkv, shape, weights, tokens, q, kv);
}

}  // namespace tandem
