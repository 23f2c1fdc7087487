// Sums over the lower threads of a block, and searches in lists, for kernels that write what they choose in order.
#pragma once

#include "engine/kernels/cuda/device.cuh"

namespace tandem::gpu {

/// Sum of `value`, a whole number, over the lower threads of the block; `all`: over all. blockDim.x is a multiple
/// of 32. `scratch`: 32 shared numbers that may be used again after the call.
template <class Value>
__device__ __forceinline__ Value sum_before(Value value, Value* scratch, Value& all) {
  const unsigned warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  Value sum = value;
#pragma unroll
  for (unsigned step = 1; step < kWarp; step *= 2) {
    const Value lower = __shfl_up_sync(kWholeWarp, sum, step);
    if (lane >= step) sum += lower;
  }
  if (lane == kWarp - 1) scratch[warp] = sum;
  __syncthreads();
  Value before = 0;
  all = 0;
  for (unsigned w = 0; w < blockDim.x / kWarp; ++w) {
    if (w < warp) before += scratch[w];
    all += scratch[w];
  }
  __syncthreads();
  return before + sum - value;
}

/// Position in an ascending list of the first number that is not below `number`.
__device__ __forceinline__ std::uint32_t first_from(const std::uint32_t* list, std::uint32_t count,
                                                    std::uint32_t number) {
  std::uint32_t low = 0, high = count;
  while (low < high) {
    const std::uint32_t middle = (low + high) / 2;
    if (list[middle] < number)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/// Whether `list`, a count and then numbers in ascending order, has `block`.
__device__ __forceinline__ bool in_list(const std::uint32_t* list, std::uint32_t block) {
  const std::uint32_t at = first_from(list + 1, list[0], block);
  return at < list[0] && list[1 + at] == block;
}

}  // namespace tandem::gpu
