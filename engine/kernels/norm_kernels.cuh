// RMSNorm, with the addition to the residual stream that precedes it.
#pragma once

#include "engine/kernels/cuda/launch.cuh"

namespace tandem::gpu {

/// A block per row. The sum goes to memory before it is read again by the same thread, from the first-level cache.
template <bool fours>
__global__ void __launch_bounds__(1024)
    add_rms_norm_kernel(float* x, const float* add, const void* weight, DType weight_type, float eps, void* y,
                        DType y_type, std::uint32_t d) {
  TANDEM_SHARED(float, scratch, kWarp);
  const std::size_t row = std::size_t{blockIdx.x} * d;
  float squares = 0;
  if constexpr (fours) {
    for (std::uint32_t i = 4 * threadIdx.x; i < d; i += 4 * blockDim.x) {
      float4 v = load_vector<float4>(x + row + i);
      if (add != nullptr) {
        const float4 more = load_vector<float4>(add + row + i);
        v = make_float4(v.x + more.x, v.y + more.y, v.z + more.z, v.w + more.w);
        store_vector(x + row + i, v);
      }
      squares += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
    }
  } else {
    for (std::uint32_t i = threadIdx.x; i < d; i += blockDim.x) {
      float v = x[row + i];
      if (add != nullptr) x[row + i] = v += add[row + i];
      squares += v * v;
    }
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

}  // namespace tandem::gpu
