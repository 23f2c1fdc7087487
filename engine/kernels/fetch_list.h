// Lists for gather_lists_cuda() of what a choice fetches from host memory, made where the choice was made: the host
// sees neither the choice nor the list before the pieces have crossed the link. Exact on every device: numbers, no
// arithmetic.
#pragma once

#include <cstdint>

#include "engine/device/cuda/launch_array.h"
#include "engine/device/cuda/runtime.h"  // CudaStream
#include "engine/kernels/page_list.h"

namespace tandem {

/// A list for each sequence, one behind the other. Piece i of sequence s moves from number from[s * room + i] of one
/// pool to number to[s * room + i] of the sequence's own; count[s] of them. On the GPU that is Pieces::from_slots,
/// to_slots and device_count. Numbers have 32 bits: `slots`, which every list is told, is how many pages for all KV
/// heads its host's pool has, and what has more than 2^32 pieces is an InputError.
struct FetchList {
  std::uint32_t* from = nullptr;   // [sequences][room]
  std::uint32_t* to = nullptr;     // [sequences][room]
  std::uint32_t* count = nullptr;  // [sequences]
  std::uint32_t room = 0;          // pieces
};

/// Units of tokens that each KV head of one sequence chose (SkewedChoice), and where they go: to
/// [kv_heads]{K [room * unit][D], V [room * unit][D]}, in the order of the list.
struct UnitFetch {
  const std::uint32_t* chosen = nullptr;  // [kv_heads][1 + room]: a count, then units
  std::uint32_t room = 0;
  const std::uint32_t* pages = nullptr;  // where the sequence's pages of 16 tokens lie on the host, from token 0 on
  std::uint32_t to_first = 0;            // number of the piece where the first K begins
};
/// A piece is K, or V, of min(unit, 16) tokens: of the host's pool, which is KvPages, and of the other one alike.
/// `unit` divides 16 or is a multiple of it. By KV head and unit, K before V. Room for 2 * kv_heads * the largest
/// UnitFetch::room * max(unit / 16, 1) pieces. n and kv_heads are at least 1.
void list_units(const UnitFetch* fetches /*[n]*/, std::uint32_t n, std::uint32_t kv_heads, std::uint32_t unit,
                std::uint32_t slots, const FetchList& list);

/// The same on the GPU. The fetches and all that they name are device memory; `pages` may be pinned.
void list_units_cuda(const LaunchArray<UnitFetch>& fetches /*[n]*/, std::uint32_t n, std::uint32_t kv_heads,
                     std::uint32_t unit, std::uint32_t slots, const FetchList& list, CudaStream stream);

/// Of lists of host pages, one per row and KV head as pages_of_selection_cuda() leaves them: what has to be fetched so
/// that page i of a KV head's list is in slot i of the row's own pages on the device. A piece is K and V of a page and
/// KV head, number slot * kv_heads + kv_head of KvPages on either side. Entries without tokens, which stand at the end,
/// move nothing. Room for kv_heads * capacity pieces; rows and kv_heads are at least 1. All pointers are device memory.
/// On the CPU runtime/fetch_ops.cc copies where it lists.
void list_pages_cuda(const PageEntry* entries /*[rows][kv_heads][capacity]*/,
                     const std::uint32_t* counts /*[rows][kv_heads]*/, std::uint32_t rows, std::uint32_t kv_heads,
                     std::uint32_t capacity, std::uint32_t slots, const FetchList& list, CudaStream stream);

/// The same lists over what was fetched so: entry i is slot i.
void number_pages_cuda(PageEntry* entries /*[lists][capacity]*/, const std::uint32_t* counts /*[lists]*/,
                       std::uint32_t lists, std::uint32_t capacity, CudaStream stream);

/// What the lists ask: InputError where pages in `slots` have more than 2^32 pieces, of which a page of one KV head has
/// `per_page`.
void check_piece_numbers(std::uint32_t slots, std::uint32_t kv_heads, std::uint32_t per_page);

}  // namespace tandem
