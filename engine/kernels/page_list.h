// KV on the device as its kernels are given it: pages in one allocation, and lists that say which pages a sequence, or
// one of its KV heads, attends. Lists live in device memory, so that what a kernel chose is attended without the host
// having seen it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/common/on_both.h"
#include "engine/kernels/tensor.h"

namespace tandem {

/// Part of a page, in a list.
struct PageEntry {
  std::uint32_t slot = 0;       // of KvPages; exists where tokens > 0 (attention asks that only where a head attends)
  std::uint16_t first = 0;      // token slots [first, first + tokens) of the page are attended, the others not read
  std::uint16_t tokens = 0;     // first + tokens <= 16
  std::uint32_t head_mask = 0;  // bit g: query head g of the group attends it; 0: not read
};

/// Where the pages of one row of a batch lie, in place of KvPages::pages.
struct RowPages {
  const void* pages = nullptr;  // aligned like KvPages::pages; slot 0 is there for rows that attend nothing, too
  /// 0: laid out as KvPages. Otherwise tokens that are packed, [kv head]{K [room][D], V [room][D]}: slot s are those
  /// from 16 s on, and the last one need not be whole.
  std::uint32_t room = 0;
};

inline constexpr std::uint32_t kListPageTokens = 16;

/// Pages as KvStore lays them out: [slot][kv head][K, V][16 tokens][D] of `type`. Device memory, not owned.
struct KvPages {
  const void* pages = nullptr;  // aligned to 16 bytes; slot 0 is there though nothing is attended
  DType type = DType::f32;
  std::uint32_t kv_heads = 0, dim = 0;
  const RowPages* of_rows = nullptr;  // [rows]; decode attention and scores of single tokens only

  /// Bytes of K (or V) of one KV head: of a token, and of a page.
  TANDEM_ON_BOTH std::size_t row_bytes() const { return dim * size_of(type); }
  TANDEM_ON_BOTH std::size_t page_bytes() const { return kListPageTokens * row_bytes(); }
  /// The key of the token at `position`, which lies in the page at `slot`; its value lies page_bytes() behind.
  TANDEM_ON_BOTH const char* key(std::uint32_t slot, std::uint32_t kv_head, std::uint32_t position) const {
    const std::size_t row = row_bytes(), page = kListPageTokens * row;
    return static_cast<const char*>(pages) + (std::size_t{slot} * kv_heads + kv_head) * 2 * page +
           position % kListPageTokens * row;
  }
};

/// One list per row of a batch, or one per row and KV head. Device memory, not owned.
struct PageLists {
  const PageEntry* entries = nullptr;     // [lists][capacity]
  const std::uint32_t* counts = nullptr;  // [lists]
  std::uint32_t capacity = 0;
  bool per_kv_head = false;  // list row * kv_heads + kv_head; otherwise list `row` serves all KV heads
};

/// The first so many tokens of a row, or of one of its KV heads, on their way to a page list. Device memory, not owned.
struct WholePages {
  std::uint32_t tokens = 0;
  const std::uint32_t* count = nullptr;  // times `tokens`; nullptr: once
  const std::uint32_t* slots = nullptr;  // of the pages, from token 0 on; nullptr: 0, 1, 2, ..., as packed tokens lie
};

/// Tokens [begin, end) of a sequence.
struct TokenRange {
  std::uint32_t begin = 0, end = 0;
};
/// Ranges [first, first + count) of an array of them, of one row or one of its KV heads, on their way to a page list.
struct PageRanges {
  const std::uint32_t* slots = nullptr;  // of the pages, from token 0 on; device memory, not owned
  std::uint32_t first = 0, count = 0;
};

/// Single tokens that a KV head chose among those of a row's pages, on their way to a page list. Device memory, not
/// owned.
struct SingleTokens {
  const std::uint32_t* chosen = nullptr;  // a count, then tokens; nullptr: none
  const std::uint32_t* slots = nullptr;   // of the pages, from token 0 on
};

/// Resident blocks that a KV head attends, those that it chose or all, slot by slot, on their way to a page list.
/// Device memory, not owned.
struct ResidentPages {
  const std::uint32_t* table = nullptr;   // [residents]
  const std::uint32_t* chosen = nullptr;  // a count, then blocks in ascending order; nullptr: all
  std::uint32_t residents = 0, pages_per_block = 1;
};

/// What the query heads of one row chose, on its way to page lists. Device memory, not owned.
struct BlockSelection {
  const std::uint32_t* chosen = nullptr;  // [lists][1 + room]: a count, then block numbers in ascending order
  const std::uint32_t* slots = nullptr;   // [pages] of the tokens that the blocks cover, from block 0; nullptr: all 0
  std::uint32_t blocks = 0;
  std::uint32_t pages_per_block = 0;
  std::uint32_t tokens = 0;  // covered by all blocks: the last page may be partly filled
  std::uint32_t room = 0;    // of a list, at least `blocks`
};

}  // namespace tandem
