// A ragged batch over KV pages, for the cases of attention.
#pragma once

#include <algorithm>
#include <cstdint>
#include <fmt/core.h>
#include <numeric>
#include <string>
#include <vector>

#include "engine/kernels/attention.h"
#include "eval/kernels/case.h"

namespace tandem::eval {

struct Heads {
  std::uint32_t kv, group, dim;
  std::uint32_t q() const { return kv * group; }
};

enum class KvPlacing : std::uint8_t {
  pages,  // of 16 tokens of all heads, in shuffled slots
  runs,   // for the host alone: all K of a row's head, then all V, as HGCA packs tokens
};

/// All of it normal numbers of one seed.
struct PagedBatch {
  PagedBatch(Heads of, DType kv_type, std::vector<std::uint32_t> counts, float key_scale = 1,
             KvPlacing placed = KvPlacing::pages)
      : heads(of), type(kv_type), placing(placed), tokens(std::move(counts)), scale(key_scale) {
    for (const std::uint32_t count : tokens) pages.push_back(pages_of(count));
    slots = shuffled(first_page(tokens.size()), 7);
  }
  std::size_t elements() const { return slots.size() * heads.kv * 2 * kListPageTokens * heads.dim; }
  std::size_t queries() const { return tokens.size() * heads.q() * heads.dim; }
  double all_tokens() const { return std::accumulate(tokens.begin(), tokens.end(), 0.0); }
  /// Bytes of K (or of V) of all tokens and heads.
  double vector_bytes() const { return all_tokens() * heads.kv * heads.dim * static_cast<double>(size_of(type)); }
  /// Where a row's pages begin in `slots`.
  std::uint32_t first_page(std::size_t row) const {
    return std::accumulate(pages.begin(), pages.begin() + static_cast<std::ptrdiff_t>(row), 0u);
  }
  std::uint32_t capacity() const { return *std::ranges::max_element(pages); }
  KvPages pages_at(const void* kv) const { return {kv, type, heads.kv, heads.dim}; }
  /// The KV on a target, and the same numbers in host memory, for the oracle.
  KvPages placed_kv(CaseMemory& memory) const { return pages_at(memory.stored_normals(elements(), type, 1, scale)); }
  std::vector<char> host_kv() const { return host_normals(elements(), type, 1, scale); }
  std::uint32_t tokens_of(std::size_t row, std::uint32_t page) const {
    return std::min(kListPageTokens, tokens[row] - page * kListPageTokens);
  }
  /// The pages of each row.
  PageLists lists(CaseMemory& memory) const {
    std::vector<PageEntry> entries(tokens.size() * capacity());
    for (std::size_t row = 0; row < tokens.size(); ++row)
      for (std::uint32_t page = 0; page < pages[row]; ++page)
        entries[row * capacity() + page] = {slots[first_page(row) + page], 0,
                                            static_cast<std::uint16_t>(tokens_of(row, page)), ~0u};
    return {memory.input(entries).target, memory.input(pages).target, capacity(), false};
  }
  /// Spans of pages [first, last) of a row.
  std::vector<KvSpan> spans(const void* kv, std::size_t row, std::uint32_t kv_head, std::uint32_t first,
                            std::uint32_t last) const {
    const KvPages at = pages_at(kv);
    if (placing == KvPlacing::runs) {
      const std::size_t begin = std::size_t{first_page(row)} * heads.kv * 2 + std::size_t{kv_head} * pages[row] * 2;
      const char* const keys = static_cast<const char*>(kv) + (begin + first) * at.page_bytes();
      return {{keys, keys + pages[row] * at.page_bytes(),
               std::min(last * kListPageTokens, tokens[row]) - first * kListPageTokens, ~0u}};
    }
    std::vector<KvSpan> out;
    out.reserve(last - first);
    const std::uint32_t* const slot = &slots[first_page(row)];
    for (std::uint32_t page = first; page < last; ++page) {
      const char* const keys = at.key(slot[page], kv_head, 0);
      out.push_back({keys, keys + at.page_bytes(), tokens_of(row, page), ~0u});
    }
    return out;
  }
  std::string shape() const {
    const auto [least, most] = std::ranges::minmax(tokens);
    return fmt::format("batch {} x {}, {}/{} heads, D {}, {}", tokens.size(),
                       least == most ? std::to_string(most) : fmt::format("{}-{}", least, most), heads.q(), heads.kv,
                       heads.dim, to_string(type));
  }

  Heads heads;
  DType type;
  KvPlacing placing;
  std::vector<std::uint32_t> tokens, pages, slots;
  float scale;
};

}  // namespace tandem::eval
