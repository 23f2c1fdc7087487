// From choices to the pieces that a gather moves, a block of threads per KV head and sequence: each finds its place in
// the list from the counts of those before it.
#pragma once

#include "engine/kernels/block_scan.cuh"
#include "engine/kernels/fetch_list.h"

namespace tandem::gpu {

constexpr unsigned kListThreads = 256;

/// Sum of count_of(l) over the lists before this block's, which has `own`; the last block says what all hold. Grid:
/// {KV heads, rows}.
template <class CountOf>
__device__ __forceinline__ std::uint32_t pieces_before(const CountOf& count_of, std::uint32_t own, std::uint32_t* sums,
                                                       const FetchList& list) {
  const std::uint32_t mine = blockIdx.y * gridDim.x + blockIdx.x;
  std::uint32_t part = 0, before = 0;
  for (std::uint32_t l = threadIdx.x; l < mine; l += kListThreads) part += count_of(l);
  sum_before(part, sums, before);
  if (threadIdx.x == 0 && mine + 1 == gridDim.x * gridDim.y) *list.count = before + own;
  return before;
}

inline __global__ void __launch_bounds__(kListThreads)
    list_units_kernel(const __grid_constant__ LaunchArray<UnitFetch> fetches, std::uint32_t per_unit,
                      std::uint32_t per_page, FetchList list) {
  TANDEM_SHARED(std::uint32_t, sums, kWarp);
  const std::uint32_t heads = gridDim.x, head = blockIdx.x;
  const auto list_of = [&](std::uint32_t l) {
    const UnitFetch fetch = fetches[l / heads];
    return fetch.chosen + (l % heads) * (1 + std::size_t{fetch.room});
  };
  const std::uint32_t* const chosen = list_of(blockIdx.y * heads + head);
  const std::uint32_t pieces = chosen[0] * per_unit;
  const std::uint32_t first =
      pieces_before([&](std::uint32_t l) { return 2 * list_of(l)[0] * per_unit; }, 2 * pieces, sums, list);
  const UnitFetch fetch = fetches[blockIdx.y];
  const std::uint32_t half = fetch.room * per_unit;
  for (std::uint32_t n = threadIdx.x; n < 2 * pieces; n += kListThreads) {
    const std::uint32_t i = n / 2, is_v = n % 2, at = chosen[1 + i / per_unit] * per_unit + i % per_unit;
    list.from[first + n] = ((fetch.pages[at / per_page] * heads + head) * 2 + is_v) * per_page + at % per_page;
    list.to[first + n] = fetch.to_first + (head * 2 + is_v) * half + i;
  }
}

/// Entries of a list that hold tokens: all but those at its end.
__device__ __forceinline__ std::uint32_t filled_entries(const PageEntry* entries, std::uint32_t count) {
  while (count > 0 && entries[count - 1].tokens == 0) --count;
  return count;
}

inline __global__ void __launch_bounds__(kListThreads)
    list_pages_kernel(const PageEntry* entries, const std::uint32_t* counts, std::uint32_t capacity, FetchList list) {
  TANDEM_SHARED(std::uint32_t, sums, kWarp);
  const std::uint32_t heads = gridDim.x, head = blockIdx.x, mine = blockIdx.y * heads + head;
  const auto filled = [&](std::uint32_t l) { return filled_entries(entries + std::size_t{l} * capacity, counts[l]); };
  const std::uint32_t pages = filled(mine), first = pieces_before(filled, pages, sums, list);
  for (std::uint32_t i = threadIdx.x; i < pages; i += kListThreads) {
    list.from[first + i] = entries[std::size_t{mine} * capacity + i].slot * heads + head;
    list.to[first + i] = (blockIdx.y * capacity + i) * heads + head;
  }
}

inline __global__ void __launch_bounds__(kListThreads)
    rename_pages_kernel(PageEntry* entries, const std::uint32_t* counts, std::uint32_t capacity) {
  const std::uint32_t mine = blockIdx.y * gridDim.x + blockIdx.x;
  for (std::uint32_t i = threadIdx.x; i < counts[mine]; i += kListThreads)
    entries[std::size_t{mine} * capacity + i].slot = blockIdx.y * capacity + i;
}

}  // namespace tandem::gpu
