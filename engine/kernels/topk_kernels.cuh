// Exact selection of the k largest, a block per row: four passes of a radix select find the k-th largest key, a last
// one writes what lies above it and the first of its ties, in order of the index.
#pragma once

#include "engine/kernels/block_scan.cuh"
#include "engine/kernels/topk.h"

namespace tandem::gpu {

constexpr unsigned kTopKThreads = 256;
constexpr unsigned kTopKDigits = 256;
constexpr unsigned kTopKRun = 8;  // neighbours per thread in the last pass

/// Unsigned numbers in the order of the scores: both zeros are one, NaN is as -infinity.
__device__ __forceinline__ std::uint32_t top_k_key(const TopKRow& row, std::uint32_t group, std::uint32_t i) {
  float score = -__builtin_huge_valf();
  for (std::uint32_t g = 0; g < group; ++g) score = fmaxf(score, row.scores[std::size_t{g} * row.n + i]);
  const std::uint32_t bits = score == 0.0f ? 0u : __float_as_uint(score);
  return (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
}

__global__ void __launch_bounds__(kTopKThreads) top_k_kernel(const TopKRow* rows, std::uint32_t group) {
  TANDEM_SHARED(std::uint32_t, counts, kTopKDigits);
  TANDEM_SHARED(std::uint32_t, sums, kWarp);
  TANDEM_SHARED(std::uint32_t, found, 2);
  static_assert(kTopKThreads == kTopKDigits);
  const TopKRow& row = rows[blockIdx.x];
  if (row.k >= row.n) {
    for (std::uint32_t i = threadIdx.x; i < row.n; i += kTopKThreads) row.out[1 + i] = i;
    if (threadIdx.x == 0) row.out[0] = row.n;
    return;
  }
  if (threadIdx.x == 0) row.out[0] = row.k;
  if (row.k == 0) return;

  std::uint32_t prefix = 0, known = 0, left = row.k;  // the key's digits so far, their bits, its rank among equals
  for (int shift = 24; shift >= 0; shift -= 8) {
    counts[threadIdx.x] = 0;
    __syncthreads();
    for (std::uint32_t i = threadIdx.x; i < row.n; i += kTopKThreads) {
      const std::uint32_t key = top_k_key(row, group, i);
      if ((key & known) == prefix) atomicAdd(&counts[key >> shift & 0xffu], 1u);
    }
    __syncthreads();
    const std::uint32_t digit = kTopKDigits - 1 - threadIdx.x, count = counts[digit];
    std::uint32_t all = 0;
    const std::uint32_t above = sum_before(count, sums, all);
    if (above < left && above + count >= left) {  // of one thread
      found[0] = digit;
      found[1] = left - above;
    }
    __syncthreads();
    prefix |= found[0] << shift;
    known |= 0xffu << shift;
    left = found[1];
  }

  std::uint32_t above_before = 0, ties_before = 0;
  for (std::uint32_t begin = 0; begin < row.n; begin += kTopKThreads * kTopKRun) {
    const std::uint32_t first = begin + threadIdx.x * kTopKRun;
    std::uint32_t keys[kTopKRun];
    std::uint32_t packed = 0;  // ties in the low half, keys above in the high half: at most 2048 each
#pragma unroll
    for (unsigned i = 0; i < kTopKRun; ++i) {
      keys[i] = first + i < row.n ? top_k_key(row, group, first + i) : 0u;
      if (first + i < row.n) packed += keys[i] > prefix ? 0x10000u : keys[i] == prefix ? 1u : 0u;
    }
    std::uint32_t all = 0;
    const std::uint32_t lower = sum_before(packed, sums, all);
    std::uint32_t above = above_before + (lower >> 16), ties = ties_before + (lower & 0xffffu);
#pragma unroll
    for (unsigned i = 0; i < kTopKRun; ++i) {
      if (first + i >= row.n) break;
      const std::uint32_t ties_chosen = ties < left ? ties : left;
      if (keys[i] > prefix) {
        row.out[1 + above + ties_chosen] = first + i;
        ++above;
      } else if (keys[i] == prefix) {
        if (ties < left) row.out[1 + above + ties_chosen] = first + i;
        ++ties;
      }
    }
    above_before += all >> 16;
    ties_before += all & 0xffffu;
  }
}

}  // namespace tandem::gpu
