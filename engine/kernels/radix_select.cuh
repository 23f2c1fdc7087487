// Exact selection of the k largest of many keys by one block: four passes of a radix select find the k-th largest, a
// last one walks over what lies above it and the first of its ties, in order of the index.
#pragma once

#include "engine/kernels/block_scan.cuh"

namespace tandem::gpu {

constexpr unsigned kSelectThreads = 256;  // of a block that selects; as many as digits
constexpr unsigned kSelectDigits = 256;
constexpr unsigned kSelectRun = 8;  // neighbours per thread in the last pass

/// Numbers in the order of the scores: both zeros are one, NaN is as -infinity. Never 0, which is the key of what does
/// not compete, and never all ones, which is the key of what is taken in any case.
__device__ __forceinline__ std::uint32_t order_key(float score) {
  score = fmaxf(score, -__builtin_huge_valf());
  const std::uint32_t bits = score == 0.0f ? 0u : __float_as_uint(score);
  return (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
}

/// Chosen are all larger keys and the first `ties` of this one.
struct SelectionEnd {
  std::uint32_t key, ties;
};

template <class Amount>
struct DigitScratch {
  Amount digits[kSelectDigits];
  Amount sums[kWarp];
  Amount left;
  std::uint32_t digit;
};
using SelectScratch = DigitScratch<std::uint32_t>;

/// Where the amounts of the largest keys first reach wanted(the amount of all): that key, and what of the wanted is
/// left for it, digit by digit. add(shift, known, prefix): adds the amount of each key with (key & known) == prefix to
/// scratch.digits[key >> shift & 0xff]; every thread calls it.
template <class Amount, class Add, class Wanted>
__device__ __forceinline__ Amount reach_amount(const Add& add, const Wanted& wanted, DigitScratch<Amount>& scratch,
                                               std::uint32_t& key) {
  static_assert(kSelectThreads == kSelectDigits);
  std::uint32_t known = 0;  // bits of the digits so far
  Amount left = 0;
  key = 0;
  for (int shift = 24; shift >= 0; shift -= 8) {
    scratch.digits[threadIdx.x] = 0;
    __syncthreads();
    add(shift, known, key);
    __syncthreads();
    const std::uint32_t digit = kSelectDigits - 1 - threadIdx.x;
    const Amount amount = scratch.digits[digit];
    Amount all = 0;
    const Amount above = sum_before(amount, scratch.sums, all);
    if (shift == 24) left = wanted(all);
    if (above < left && above + amount >= left) {  // of one thread
      scratch.digit = digit;
      scratch.left = left - above;
    }
    __syncthreads();
    key |= scratch.digit << shift;
    known |= 0xffu << shift;
    left = scratch.left;
  }
  return left;
}

/// 1 <= k <= the number of keys above 0. key_of(i): for i < n, the same at every call.
template <class KeyOf>
__device__ __forceinline__ SelectionEnd end_of_selection(const KeyOf& key_of, std::uint32_t n, std::uint32_t k,
                                                         SelectScratch& scratch) {
  const auto count = [&](int shift, std::uint32_t known, std::uint32_t prefix) {
    for (std::uint32_t i = threadIdx.x; i < n; i += kSelectThreads) {
      const std::uint32_t key = key_of(i);
      if ((key & known) == prefix) atomicAdd(&scratch.digits[key >> shift & 0xffu], 1u);
    }
  };
  SelectionEnd end;
  end.ties = reach_amount(
      count, [k](std::uint32_t) { return k; }, scratch, end.key);
  return end;
}

struct WalkToTheEnd {
  __device__ bool operator()() const { return true; }
};

/// take(rank, i) for every chosen i, rank counting them in ascending order. Every thread of the block calls. go_on():
/// by every thread after each kSelectThreads * kSelectRun indices, of which a thread has kSelectRun neighbours; the
/// walk ends where it is false, for all threads alike.
template <class KeyOf, class Take, class GoOn = WalkToTheEnd>
__device__ __forceinline__ void walk_selection(const KeyOf& key_of, std::uint32_t n, SelectionEnd end,
                                               SelectScratch& scratch, const Take& take, const GoOn& go_on = {}) {
  std::uint32_t above_before = 0, ties_before = 0;
  for (std::uint32_t begin = 0; begin < n; begin += kSelectThreads * kSelectRun) {
    const std::uint32_t first = begin + threadIdx.x * kSelectRun;
    std::uint32_t keys[kSelectRun];
    std::uint32_t packed = 0;  // ties in the low half, keys above in the high half: at most 2048 each
#pragma unroll
    for (unsigned i = 0; i < kSelectRun; ++i) {
      keys[i] = first + i < n ? key_of(first + i) : 0u;
      if (first + i < n) packed += keys[i] > end.key ? 0x10000u : keys[i] == end.key ? 1u : 0u;
    }
    std::uint32_t all = 0;
    const std::uint32_t lower = sum_before(packed, scratch.sums, all);
    std::uint32_t above = above_before + (lower >> 16), ties = ties_before + (lower & 0xffffu);
#pragma unroll
    for (unsigned i = 0; i < kSelectRun; ++i) {
      if (first + i >= n) break;
      const std::uint32_t ties_chosen = ties < end.ties ? ties : end.ties;
      if (keys[i] > end.key) {
        take(above + ties_chosen, first + i);
        ++above;
      } else if (keys[i] == end.key) {
        if (ties < end.ties) take(above + ties_chosen, first + i);
        ++ties;
      }
    }
    if (!go_on()) return;
    above_before += all >> 16;
    ties_before += all & 0xffffu;
  }
}

/// list = `keep`, and the best so many of n in ascending order. keep <= n.
template <class KeyOf>
__device__ __forceinline__ void list_best(const KeyOf& key_of, std::uint32_t n, std::uint32_t keep, std::uint32_t* list,
                                          SelectScratch& scratch) {
  if (threadIdx.x == 0) list[0] = keep;
  if (keep == 0) return;
  walk_selection(key_of, n, end_of_selection(key_of, n, keep, scratch), scratch,
                 [list](std::uint32_t rank, std::uint32_t i) { list[1 + rank] = i; });
}

}  // namespace tandem::gpu
