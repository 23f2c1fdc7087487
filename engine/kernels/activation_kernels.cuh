// Elementwise kernels: four neighbours per thread and step.
#pragma once

#include "engine/kernels/cuda/launch.cuh"

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
inline __global__ void __launch_bounds__(256)
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
inline __global__ void __launch_bounds__(256)
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

}  // namespace tandem::gpu
