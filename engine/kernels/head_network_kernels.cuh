// The predictor's network, a block of threads per few heads: activations stay in shared memory from one layer to the
// next, a thread per output, and every block reads the weights once from the second-level cache (447 KB of the embedded
// model's). So a batch of one takes four rows per block, for many blocks that read side by side, and a large one 16.
#pragma once

#include "engine/kernels/cuda/device.cuh"
#include "engine/kernels/head_network.h"

namespace tandem::gpu {

constexpr unsigned kMostNetworkThreads = 512;

__device__ __forceinline__ bool is_finite(float x) {
  return x - x == 0.0f;
}

/// Dynamic shared memory: 2 * widest * kRows floats.
template <unsigned kRows>
__global__ void __launch_bounds__(kMostNetworkThreads, 1)
    predict_heads_kernel(const __grid_constant__ HeadNetwork network, const float* features, std::uint32_t n,
                         float* out) {
  static_assert(kRows % 4 == 0);
  TANDEM_DYNAMIC_SHARED(shared);
  TANDEM_SHARED(float, said, kRows* kHeadOutputs);
  float* x = reinterpret_cast<float*>(shared);  // [input][row]
  float* y = x + std::size_t{network.widest} * kRows;
  const std::uint32_t first = blockIdx.x * kRows, inputs = network.inputs;
  for (std::uint32_t i = threadIdx.x; i < kRows * inputs; i += blockDim.x) {
    const std::uint32_t row = i / inputs, f = i % inputs;  // rows beyond the last take the last once more
    const std::uint32_t from = first + row < n ? first + row : n - 1;
    const float z = (features[std::size_t{from} * inputs + f] - network.mean[f]) * network.scale[f];
    x[f * kRows + row] = z < -kFeatureCut ? -kFeatureCut : z > kFeatureCut ? kFeatureCut : z;  // NaN stays
  }
  __syncthreads();
  for (std::uint32_t l = 0; l + 1 < network.count; ++l) {
    const NetworkLayer layer = network.layers[l];
    for (std::uint32_t o = threadIdx.x; o < layer.out; o += blockDim.x) {
      const float* weight = layer.weight + o;
      float sums[kRows];
#pragma unroll
      for (unsigned r = 0; r < kRows; ++r) sums[r] = layer.bias[o];
#pragma unroll 4
      for (std::uint32_t i = 0; i < layer.in; ++i, weight += layer.out) {
        const float w = *weight;
#pragma unroll
        for (unsigned r = 0; r < kRows; r += 4) {
          const float4 four = load_vector<float4>(x + i * kRows + r);
          sums[r] = fmaf(w, four.x, sums[r]);
          sums[r + 1] = fmaf(w, four.y, sums[r + 1]);
          sums[r + 2] = fmaf(w, four.z, sums[r + 2]);
          sums[r + 3] = fmaf(w, four.w, sums[r + 3]);
        }
      }
#pragma unroll
      for (unsigned r = 0; r < kRows; ++r) y[o * kRows + r] = sums[r] < 0.0f ? 0.0f : sums[r];  // NaN stays
    }
    __syncthreads();
    float* const before = x;
    x = y;
    y = before;
  }
  // The last layer has few outputs: a warp each.
  const NetworkLayer last = network.layers[network.count - 1];
  for (std::uint32_t p = threadIdx.x / kWarp; p < kRows * kHeadOutputs; p += blockDim.x / kWarp) {
    const std::uint32_t row = p / kHeadOutputs, o = p % kHeadOutputs;
    float sum = 0.0f;
    for (std::uint32_t i = threadIdx.x % kWarp; i < last.in; i += kWarp)
      sum = fmaf(last.weight[i * kHeadOutputs + o], x[i * kRows + row], sum);
    sum = warp_sum(sum);
    if (threadIdx.x % kWarp == 0) said[p] = sum + last.bias[o];
  }
  __syncthreads();
  if (threadIdx.x >= kRows || first + threadIdx.x >= n) return;
  const float* const own = said + threadIdx.x * kHeadOutputs;
  float* const to = out + (std::size_t{first} + threadIdx.x) * kHeadOutputs;
  const bool known = is_finite(own[0]) && is_finite(own[1]);
  to[0] = known ? own[0] : 1.0f;
  to[1] = known ? own[1] : 0.0f;
  to[2] = known && own[2] > 0.0f ? 1.0f : 0.0f;
}

}  // namespace tandem::gpu
