// From choices to the pieces that a gather moves, a block of threads per KV head and sequence: each finds its place in
// the sequence's list from the counts of the heads before it.
#include "engine/common/error.h"
#include "engine/kernels/block_scan.cuh"
#include "engine/kernels/cuda/launch.cuh"
#include "engine/kernels/fetch_list.h"

namespace tandem::gpu {

constexpr unsigned kListThreads = 256;

/// Where in the lists this block's pieces begin, of which it has `own`: behind count_of(head) of each head before it.
/// The last head's block says what its sequence's list holds. Grid: {KV heads, sequences}.
template <class CountOf>
__device__ __forceinline__ std::size_t first_piece(const CountOf& count_of, std::uint32_t own, std::uint32_t* sums,
                                                   const FetchList& list) {
  std::uint32_t part = 0, before = 0;
  for (std::uint32_t head = threadIdx.x; head < blockIdx.x; head += kListThreads) part += count_of(head);
  sum_before(part, sums, before);
  if (threadIdx.x == 0 && blockIdx.x + 1 == gridDim.x) list.count[blockIdx.y] = before + own;
  return std::size_t{blockIdx.y} * list.room + before;
}

__global__ void __launch_bounds__(kListThreads)
    list_units_kernel(const __grid_constant__ LaunchArray<UnitFetch> fetches, std::uint32_t per_unit,
                      std::uint32_t per_page, FetchList list) {
  TANDEM_SHARED(std::uint32_t, sums, kWarp);
  const std::uint32_t heads = gridDim.x, head = blockIdx.x;
  const UnitFetch fetch = fetches[blockIdx.y];
  const auto list_of = [&](std::uint32_t h) { return fetch.chosen + h * (1 + std::size_t{fetch.room}); };
  const std::uint32_t* const chosen = list_of(head);
  const std::uint32_t pieces = chosen[0] * per_unit;
  const std::size_t first =
      first_piece([&](std::uint32_t h) { return 2 * list_of(h)[0] * per_unit; }, 2 * pieces, sums, list);
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

__global__ void __launch_bounds__(kListThreads)
    list_pages_kernel(const PageEntry* entries, const std::uint32_t* counts, std::uint32_t capacity, FetchList list) {
  TANDEM_SHARED(std::uint32_t, sums, kWarp);
  const std::uint32_t heads = gridDim.x, head = blockIdx.x, first_list = blockIdx.y * heads;
  const auto entries_of = [&](std::uint32_t h) { return entries + std::size_t{first_list + h} * capacity; };
  const auto filled = [&](std::uint32_t h) { return filled_entries(entries_of(h), counts[first_list + h]); };
  const std::uint32_t pages = filled(head);
  const std::size_t first = first_piece(filled, pages, sums, list);
  for (std::uint32_t i = threadIdx.x; i < pages; i += kListThreads) {
    list.from[first + i] = entries_of(head)[i].slot * heads + head;
    list.to[first + i] = i * heads + head;
  }
}

__global__ void __launch_bounds__(kListThreads)
    number_pages_kernel(PageEntry* entries, const std::uint32_t* counts, std::uint32_t capacity) {
  for (std::uint32_t i = threadIdx.x; i < counts[blockIdx.x]; i += kListThreads)
    entries[std::size_t{blockIdx.x} * capacity + i].slot = i;
}

}  // namespace tandem::gpu

namespace tandem {
using namespace gpu;

void list_units_cuda(const LaunchArray<UnitFetch>& fetches, std::uint32_t n, std::uint32_t kv_heads, std::uint32_t unit,
                     std::uint32_t slots, const FetchList& list, CudaStream stream) {
  const std::uint32_t piece = unit < kListPageTokens ? unit : kListPageTokens;
  TANDEM_CHECK(unit >= 1 && unit % piece == 0 && kListPageTokens % piece == 0, "Units of {} tokens.", unit);
  TANDEM_CHECK(n >= 1 && n <= kMaxGridRows && kv_heads >= 1, "{} fetches of {} KV heads.", n, kv_heads);
  check_piece_numbers(slots, kv_heads, 2 * (kListPageTokens / piece));
  launch(stream, list_units_kernel, dim3(kv_heads, n), kListThreads, 0, fetches, unit / piece, kListPageTokens / piece,
         list);
}

void list_pages_cuda(const PageEntry* entries, const std::uint32_t* counts, std::uint32_t rows, std::uint32_t kv_heads,
                     std::uint32_t capacity, std::uint32_t slots, const FetchList& list, CudaStream stream) {
  TANDEM_CHECK(rows >= 1 && rows <= kMaxGridRows && kv_heads >= 1, "{} rows of {} lists.", rows, kv_heads);
  check_piece_numbers(slots, kv_heads, 1);
  launch(stream, list_pages_kernel, dim3(kv_heads, rows), kListThreads, 0, entries, counts, capacity, list);
}

void number_pages_cuda(PageEntry* entries, const std::uint32_t* counts, std::uint32_t lists, std::uint32_t capacity,
                       CudaStream stream) {
  launch(stream, number_pages_kernel, lists, kListThreads, 0, entries, counts, capacity);
}

}  // namespace tandem
