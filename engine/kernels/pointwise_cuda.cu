// Row by row and element by element: four neighbours per thread and step; QKV with a warp per head.
#include "engine/common/error.h"
#include "engine/kernels/convert.h"
#include "engine/kernels/cuda/launch.cuh"
#include "engine/kernels/pointwise.h"

namespace tandem::gpu {

__device__ __forceinline__ float silu(float x) {
  return x / (1.0f + __expf(-x));
}

/// gridDim.y rows; rows of gate and up lie in_stride floats apart.
template <bool fours>
__global__ void __launch_bounds__(256) swiglu_kernel(const float* gate, const float* up, std::size_t in_stride,
                                                     void* out, DType out_type, std::uint32_t d) {
  const std::size_t in = blockIdx.y * in_stride, to = std::size_t{blockIdx.y} * d;
  if constexpr (fours) {
    const std::uint32_t i = 4 * (blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= d) return;
    const float4 g = load_vector<float4>(gate + in + i), u = load_vector<float4>(up + in + i);
    store_4(out, out_type, to + i, make_float4(silu(g.x) * u.x, silu(g.y) * u.y, silu(g.z) * u.z, silu(g.w) * u.w));
  } else {
    const std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < d) store_1(out, out_type, to + i, silu(gate[in + i]) * up[in + i]);
  }
}

/// Four elements of any type to any other.
__global__ void __launch_bounds__(256)
    convert_kernel(const void* in, DType in_type, void* out, DType out_type, std::size_t n, bool fours) {
  const std::size_t i = 4 * (std::size_t{blockIdx.x} * blockDim.x + threadIdx.x);
  if (fours && i + 4 <= n) {
    store_4(out, out_type, i, load_4(in, in_type, i));
    return;
  }
  for (std::size_t j = i; j < i + 4 && j < n; ++j) store_1(out, out_type, j, load_1(in, in_type, j));
}

/// A block per token. A token outside the table makes a row of NaN: what is wrong shows, and nothing is read from where
/// nothing is.
__global__ void __launch_bounds__(256)
    embed_kernel(const void* table, DType type, std::uint32_t rows, std::uint32_t cols, const std::int32_t* tokens,
                 float* out, bool fours) {
  const std::int32_t token = tokens[blockIdx.x];
  const bool known = token >= 0 && static_cast<std::uint32_t>(token) < rows;
  const std::size_t from = known ? static_cast<std::size_t>(token) * cols : 0, to = std::size_t{blockIdx.x} * cols;
  const float nothing = __uint_as_float(0x7fc00000u);
  if (fours) {
    for (std::uint32_t i = 4 * threadIdx.x; i < cols; i += 4 * blockDim.x)
      store_vector(out + to + i,
                   known ? load_4(table, type, from + i) : make_float4(nothing, nothing, nothing, nothing));
  } else {
    for (std::uint32_t i = threadIdx.x; i < cols; i += blockDim.x)
      out[to + i] = known ? load_1(table, type, from + i) : nothing;
  }
}

/// A block per row, which each thread reads a second time from the first-level cache. x and y may be the same.
template <bool fours>
__global__ void __launch_bounds__(1024) rms_norm_kernel(const float* x, const void* weight, DType weight_type,
                                                        float eps, void* y, DType y_type, std::uint32_t d) {
  TANDEM_SHARED(float, scratch, kWarp);
  const std::size_t row = std::size_t{blockIdx.x} * d;
  float squares = 0;
  if constexpr (fours) {
    for (std::uint32_t i = 4 * threadIdx.x; i < d; i += 4 * blockDim.x) {
      const float4 v = load_vector<float4>(x + row + i);
      squares += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
    }
  } else {
    for (std::uint32_t i = threadIdx.x; i < d; i += blockDim.x) squares += x[row + i] * x[row + i];
  }
  const float scale = 1.0f / sqrtf(block_sum(squares, scratch) / static_cast<float>(d) + eps);
  if constexpr (fours) {
    for (std::uint32_t i = 4 * threadIdx.x; i < d; i += 4 * blockDim.x) {
      const float4 v = load_vector<float4>(x + row + i), w = load_4(weight, weight_type, i);
      store_4(y, y_type, row + i,
              make_float4(v.x * scale * w.x, v.y * scale * w.y, v.z * scale * w.z, v.w * scale * w.w));
    }
  } else {
    for (std::uint32_t i = threadIdx.x; i < d; i += blockDim.x)
      store_1(y, y_type, row + i, x[row + i] * scale * load_1(weight, weight_type, i));
  }
}

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

void swiglu_cuda(const float* gate, const float* up, std::size_t in_stride, void* out, DType out_type, std::uint32_t n,
                 std::uint32_t d, CudaStream stream) {
  const bool fours =
      in_fours(gate, DType::f32, d) && in_fours(up, DType::f32, d) && in_stride % 4 == 0 && in_fours(out, out_type, d);
  // A grid has at most 65535 rows.
  for (std::uint32_t row = 0; row < n; row += kMaxGridRows) {
    const std::uint32_t rows = n - row < kMaxGridRows ? n - row : kMaxGridRows;
    launch(stream, fours ? swiglu_kernel<true> : swiglu_kernel<false>, dim3(blocks_for(d, fours ? 1024 : 256), rows),
           256, 0, gate + row * in_stride, up + row * in_stride, in_stride,
           static_cast<char*>(out) + std::size_t{row} * d * size_of(out_type), out_type, d);
  }
}

void convert_cuda(const void* in, DType in_type, void* out, DType out_type, std::size_t n, CudaStream stream) {
  launch(stream, convert_kernel, blocks_for(n, 1024), 256, 0, in, in_type, out, out_type, n,
         in_fours(in, in_type, 0) && in_fours(out, out_type, 0));
}

void embed_cuda(const MatrixView& table, const std::int32_t* tokens, float* out, std::uint32_t n, CudaStream stream) {
  const bool fours = in_fours(table.data, table.type, table.cols) && in_fours(out, DType::f32, table.cols);
  launch(stream, embed_kernel, n, threads_for(table.cols, fours ? 4 : 1, 256), 0, table.data, table.type, table.rows,
         table.cols, tokens, out, fours);
}

void rms_norm_cuda(const float* x, const MatrixView& weight, float eps, void* y, DType y_type, std::uint32_t n,
                   std::uint32_t d, CudaStream stream) {
  TANDEM_CHECK(weight.rows == 1 && weight.cols == d, "The norm weight is {}x{} for rows of {}.", weight.rows,
               weight.cols, d);
  const bool fours = in_fours(x, DType::f32, d) && in_fours(weight.data, weight.type, d) && in_fours(y, y_type, d);
  launch(stream, fours ? rms_norm_kernel<true> : rms_norm_kernel<false>, n, threads_for(d, fours ? 8 : 2), 0, x,
         weight.data, weight.type, eps, y, y_type, d);
}

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
