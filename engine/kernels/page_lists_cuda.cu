// Page lists: from chosen blocks, tokens and ranges; and the page tables that they are listed from.
#include "engine/common/error.h"
#include "engine/kernels/block_scan.cuh"
#include "engine/kernels/cuda/launch.cuh"
#include "engine/kernels/page_list_device.cuh"

namespace tandem::gpu {

constexpr unsigned kSelectionThreads = 256;
constexpr unsigned kSelectionBlocks = 4096;  // looked at together

/// Grid: {kv_heads, rows}.
__global__ void __launch_bounds__(kSelectionThreads)
    pages_of_selection_kernel(const __grid_constant__ LaunchArray<BlockSelection> rows, std::uint32_t group,
                              std::uint32_t heads_per_list, bool own_only, std::uint32_t capacity, PageEntry* entries,
                              std::uint32_t* counts, SelectedTokens tokens) {
  TANDEM_SHARED(std::uint32_t, masks, kSelectionBlocks);
  TANDEM_SHARED(std::uint32_t, sums, kWarp);
  const BlockSelection selection = rows[blockIdx.y];
  const std::uint32_t kv_head = blockIdx.x, list_number = blockIdx.y * gridDim.x + kv_head, blocks = selection.blocks;
  PageEntry* const out = entries + std::size_t{list_number} * capacity;
  std::uint32_t written = 0, mine = 0;
  for (std::uint32_t begin = 0; begin < blocks; begin += kSelectionBlocks) {
    const std::uint32_t here = blocks - begin < kSelectionBlocks ? blocks - begin : kSelectionBlocks;
    // Each thread clears the masks that it alone has read.
    for (unsigned b = threadIdx.x; b < here; b += kSelectionThreads) masks[b] = 0;
    __syncthreads();
    for (std::uint32_t g = 0; g < group; g += heads_per_list) {
      const std::uint32_t* const list =
          selection.chosen + (kv_head * group + g) / heads_per_list * (1 + std::size_t{selection.room});
      const std::uint32_t bits = heads_per_list == 1 ? 1u << g : 0xffffffffu;
      const std::uint32_t count = list[0];
      for (std::uint32_t i = first_from(list + 1, count, begin) + threadIdx.x; i < count; i += kSelectionThreads) {
        const std::uint32_t block = list[1 + i];
        if (block >= begin + here) break;
        atomicOr(&masks[block - begin], bits);
      }
    }
    __syncthreads();
    for (unsigned first = 0; first < here; first += kSelectionThreads) {
      const unsigned b = first + threadIdx.x;
      const std::uint32_t mask = b < here ? masks[b] : 0;
      std::uint32_t all = 0;
      const std::uint32_t rank = sum_before(mask != 0 ? 1u : 0u, sums, all);
      if (mask != 0) {
        std::uint32_t at = written + rank * selection.pages_per_block;
        for (std::uint32_t p = 0; p < selection.pages_per_block; ++p, ++at) {
          // A page of the last block that no token has reached is an entry without tokens.
          const std::uint32_t page = (begin + b) * selection.pages_per_block + p, token = page * kListPageTokens;
          const std::uint32_t left = token < selection.tokens ? selection.tokens - token : 0;
          if (at >= capacity) break;
          const auto tokens_here = static_cast<std::uint16_t>(left < kListPageTokens ? left : kListPageTokens);
          out[at] = {left > 0 && selection.slots != nullptr ? selection.slots[page] : 0, 0, tokens_here,
                     left == 0  ? 0
                     : own_only ? mask
                                : 0xffffffffu};
          mine += tokens_here;
        }
      }
      written += all * selection.pages_per_block;
    }
  }
  if (threadIdx.x == 0) counts[list_number] = written < capacity ? written : capacity;
  if (tokens.totals == nullptr && tokens.own == nullptr) return;
  std::uint32_t all = 0;
  sum_before(mine, sums, all);
  if (threadIdx.x != 0) return;
  if (tokens.totals != nullptr) tokens.totals[list_number] += all;
  if (tokens.own != nullptr) tokens.own[list_number] = all;
}

/// Grid: {lists}.
__global__ void __launch_bounds__(kSelectionThreads)
    whole_pages_kernel(const __grid_constant__ LaunchArray<WholePages> lists, std::uint32_t capacity,
                       PageEntry* entries, std::uint32_t* counts) {
  const WholePages list = lists[blockIdx.x];
  const std::uint32_t tokens = list.tokens * (list.count == nullptr ? 1 : *list.count);
  const std::uint32_t all = (tokens + kListPageTokens - 1) / kListPageTokens, pages = all < capacity ? all : capacity;
  for (std::uint32_t page = threadIdx.x; page < pages; page += kSelectionThreads) {
    const std::uint32_t left = tokens - page * kListPageTokens;
    entries[std::size_t{blockIdx.x} * capacity + page] = {
        list.slots == nullptr ? page : list.slots[page], 0,
        static_cast<std::uint16_t>(left < kListPageTokens ? left : kListPageTokens), 0xffffffffu};
  }
  if (threadIdx.x == 0) counts[blockIdx.x] = pages;
}

/// Grid: {lists}.
__global__ void __launch_bounds__(kSelectionThreads)
    pages_of_ranges_kernel(const __grid_constant__ LaunchArray<PageRanges> lists,
                           const __grid_constant__ LaunchArray<TokenRange> ranges, bool behind, std::uint32_t capacity,
                           PageEntry* entries, std::uint32_t* counts) {
  const PageRanges list = lists[blockIdx.x];
  PageEntry* const out = entries + std::size_t{blockIdx.x} * capacity;
  std::uint32_t written = behind ? counts[blockIdx.x] : 0;
  __syncthreads();  // all have read what the first one writes
  for (std::uint32_t i = 0; i < list.count; ++i) {
    const TokenRange range = ranges[list.first + i];
    if (range.begin >= range.end) continue;
    const std::uint32_t first = range.begin / kListPageTokens, last = (range.end - 1) / kListPageTokens;
    for (std::uint32_t page = first + threadIdx.x; page <= last && written + page - first < capacity;
         page += kSelectionThreads) {
      const std::uint32_t before = page == first ? range.begin % kListPageTokens : 0;
      const std::uint32_t end = page == last ? range.end - page * kListPageTokens : kListPageTokens;
      out[written + page - first] = {list.slots[page], static_cast<std::uint16_t>(before),
                                     static_cast<std::uint16_t>(end - before), 0xffffffffu};
    }
    written += last - first + 1;
  }
  if (threadIdx.x == 0) counts[blockIdx.x] = written < capacity ? written : capacity;
}

/// Grid: {lists}.
__global__ void __launch_bounds__(kSelectionThreads)
    pages_of_tokens_kernel(const __grid_constant__ LaunchArray<SingleTokens> lists, std::uint32_t capacity,
                           PageEntry* entries, std::uint32_t* counts) {
  const SingleTokens list = lists[blockIdx.x];
  const std::uint32_t all = list.chosen == nullptr ? 0 : list.chosen[0], tokens = all < capacity ? all : capacity;
  for (std::uint32_t i = threadIdx.x; i < tokens; i += kSelectionThreads) {
    const std::uint32_t token = list.chosen[1 + i];
    entries[std::size_t{blockIdx.x} * capacity + i] = {
        list.slots[token / kListPageTokens], static_cast<std::uint16_t>(token % kListPageTokens), 1, 0xffffffffu};
  }
  if (threadIdx.x == 0) counts[blockIdx.x] = tokens;
}

/// Grid: {lists}.
__global__ void __launch_bounds__(kSelectionThreads)
    pages_of_residents_kernel(const __grid_constant__ LaunchArray<ResidentPages> lists, std::uint32_t capacity,
                              PageEntry* entries, std::uint32_t* counts) {
  TANDEM_SHARED(std::uint32_t, sums, kWarp);
  const ResidentPages list = lists[blockIdx.x];
  const std::uint32_t pages = list.pages_per_block;
  PageEntry* const out = entries + std::size_t{blockIdx.x} * capacity;
  std::uint32_t written = 0;  // blocks
  for (std::uint32_t begin = 0; begin < list.residents; begin += kSelectionThreads) {
    const std::uint32_t slot = begin + threadIdx.x;
    const bool attended = slot < list.residents && (list.chosen == nullptr || in_list(list.chosen, list.table[slot]));
    std::uint32_t all = 0;
    const std::uint32_t rank = written + sum_before(attended ? 1u : 0u, sums, all);
    for (std::uint32_t page = 0; attended && page < pages; ++page) {
      const std::uint32_t at = rank * pages + page;
      if (at >= capacity) break;
      out[at] = {slot * pages + page, 0, kListPageTokens, 0xffffffffu};
    }
    written += all;
  }
  if (threadIdx.x == 0) counts[blockIdx.x] = written * pages < capacity ? written * pages : capacity;
}

/// Grid: {rows}.
__global__ void __launch_bounds__(kSelectionThreads)
    count_tokens_kernel(const __grid_constant__ PageLists lists, std::uint32_t kv_heads, std::uint64_t* totals) {
  TANDEM_SHARED(std::uint32_t, sums, kWarp);
  std::uint32_t mine = 0;  // of a row and layer: far below 2^32
  for (std::uint32_t head = 0; head < kv_heads; ++head) {
    const std::size_t list = std::size_t{blockIdx.x} * kv_heads + head;
    const std::uint32_t count = lists.counts[list];
    for (std::uint32_t i = threadIdx.x; i < count; i += kSelectionThreads)
      mine += lists.entries[list * lists.capacity + i].tokens;
  }
  std::uint32_t all = 0;
  sum_before(mine, sums, all);
  if (threadIdx.x == 0) totals[blockIdx.x] += all;
}

/// Grid: {layers}.
__global__ void __launch_bounds__(kSelectionThreads)
    place_slots_kernel(const __grid_constant__ LaunchArray<std::uint32_t> slots, std::uint32_t first,
                       std::uint32_t count, std::uint32_t capacity, std::uint32_t* table) {
  const std::size_t layer = blockIdx.x;
  for (std::uint32_t i = threadIdx.x; i < count; i += kSelectionThreads)
    table[layer * capacity + first + i] = slots[layer * count + i];
}

}  // namespace tandem::gpu

namespace tandem {
using namespace gpu;

void pages_of_selection_cuda(const LaunchArray<BlockSelection>& rows, std::uint32_t n, std::uint32_t kv_heads,
                             std::uint32_t group, std::uint32_t heads_per_list, bool own_only, std::uint32_t capacity,
                             PageEntry* entries, std::uint32_t* counts, CudaStream stream,
                             const SelectedTokens& tokens) {
  TANDEM_CHECK(group >= 1 && group <= 32, "A group has 1 to 32 query heads, not {}.", group);
  TANDEM_CHECK(heads_per_list == 1 || heads_per_list == group || heads_per_list == kv_heads * group,
               "{} query heads choose together, of {} groups of {}.", heads_per_list, kv_heads, group);
  TANDEM_CHECK(kv_heads == 1 || (tokens.totals == nullptr && tokens.own == nullptr), "Tokens of {} KV heads.",
               kv_heads);
  launch(stream, pages_of_selection_kernel, dim3(kv_heads, n), kSelectionThreads, 0, rows, group, heads_per_list,
         own_only, capacity, entries, counts, tokens);
}

void whole_pages_cuda(const LaunchArray<WholePages>& lists, std::uint32_t count, std::uint32_t capacity,
                      PageEntry* entries, std::uint32_t* counts, CudaStream stream) {
  launch(stream, whole_pages_kernel, count, kSelectionThreads, 0, lists, capacity, entries, counts);
}

void pages_of_ranges_cuda(const LaunchArray<PageRanges>& lists, const LaunchArray<TokenRange>& ranges,
                          std::uint32_t count, bool behind, std::uint32_t capacity, PageEntry* entries,
                          std::uint32_t* counts, CudaStream stream) {
  launch(stream, pages_of_ranges_kernel, count, kSelectionThreads, 0, lists, ranges, behind, capacity, entries, counts);
}

void pages_of_tokens_cuda(const LaunchArray<SingleTokens>& lists, std::uint32_t count, std::uint32_t capacity,
                          PageEntry* entries, std::uint32_t* counts, CudaStream stream) {
  launch(stream, pages_of_tokens_kernel, count, kSelectionThreads, 0, lists, capacity, entries, counts);
}

void pages_of_residents_cuda(const LaunchArray<ResidentPages>& lists, std::uint32_t count, std::uint32_t capacity,
                             PageEntry* entries, std::uint32_t* counts, CudaStream stream) {
  launch(stream, pages_of_residents_kernel, count, kSelectionThreads, 0, lists, capacity, entries, counts);
}

void count_tokens_cuda(const PageLists& lists, std::uint32_t rows, std::uint32_t kv_heads, std::uint64_t* totals,
                       CudaStream stream) {
  TANDEM_CHECK(lists.per_kv_head, "Tokens are counted in lists of KV heads.");
  launch(stream, count_tokens_kernel, rows, kSelectionThreads, 0, lists, kv_heads, totals);
}

void place_slots_cuda(const LaunchArray<std::uint32_t>& slots, std::uint32_t layers, std::uint32_t first,
                      std::uint32_t count, std::uint32_t capacity, std::uint32_t* table, CudaStream stream) {
  TANDEM_CHECK(first + count <= capacity, "Slots [{}, {}) in a table of {}.", first, first + count, capacity);
  if (count == 0) return;
  launch(stream, place_slots_kernel, layers, kSelectionThreads, 0, slots, first, count, capacity, table);
}

}  // namespace tandem
