// A ragged batch over KV pages, for the cases of attention.
#pragma once

#include <algorithm>
#include <cstdint>
#include <fmt/core.h>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "engine/kernels/attention.h"
#include "engine/kernels/page_list.h"
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
  PagedBatch(Heads of, DType kv_type, std::vector<std::uint32_t> counts, float key_scale,
             KvPlacing placed = KvPlacing::pages)
      : heads(of), type(kv_type), placing(placed), tokens(std::move(counts)), scale(key_scale) {
    for (const std::uint32_t count : tokens) pages.push_back(pages_of(count));
    all_pages = std::accumulate(pages.begin(), pages.end(), std::uint32_t{0});
    slots.resize(all_pages);
    std::iota(slots.begin(), slots.end(), 0u);
    std::shuffle(slots.begin(), slots.end(), std::mt19937(7));
  }
  std::size_t elements() const { return std::size_t{all_pages} * heads.kv * 2 * kListPageTokens * heads.dim; }
  std::size_t queries() const { return tokens.size() * heads.q() * heads.dim; }
  double all_tokens() const { return std::accumulate(tokens.begin(), tokens.end(), 0.0); }
  /// Bytes of K (or of V) of all tokens and heads.
  double vector_bytes() const { return all_tokens() * heads.kv * heads.dim * static_cast<double>(size_of(type)); }
  /// The KV on a target, and the same numbers in host memory, for the oracle.
  void* placed_kv(CaseMemory& memory) const { return memory.stored_normals(elements(), type, 1, scale); }
  std::vector<char> host_kv() const { return host_normals(elements(), type, 1, scale); }
  std::uint32_t tokens_of(std::size_t row, std::uint32_t page) const {
    return std::min(kListPageTokens, tokens[row] - page * kListPageTokens);
  }
  /// Spans of pages [first, last) of a row.
  std::vector<KvSpan> spans(const void* kv, std::size_t row, std::uint32_t kv_head, std::uint32_t first,
                            std::uint32_t last) const {
    const std::size_t half = std::size_t{kListPageTokens} * heads.dim * size_of(type);
    const std::uint32_t before = std::accumulate(pages.begin(), pages.begin() + static_cast<std::ptrdiff_t>(row), 0u);
    if (placing == KvPlacing::runs) {
      const std::size_t begin = std::size_t{before} * heads.kv * 2 + std::size_t{kv_head} * pages[row] * 2;
      const char* const keys = static_cast<const char*>(kv) + (begin + first) * half;
      return {{keys, keys + pages[row] * half, std::min(last * kListPageTokens, tokens[row]) - first * kListPageTokens,
               ~0u}};
    }
    const std::uint32_t* const slot = slots.data() + before;
    std::vector<KvSpan> out;
    out.reserve(last - first);
    for (std::uint32_t page = first; page < last; ++page) {
      const char* const at = static_cast<const char*>(kv) + (std::size_t{slot[page]} * heads.kv + kv_head) * 2 * half;
      out.push_back({at, at + half, tokens_of(row, page), ~0u});
    }
    return out;
  }
  std::string shape() const {
    const std::uint32_t most = *std::max_element(tokens.begin(), tokens.end());
    const std::uint32_t least = *std::min_element(tokens.begin(), tokens.end());
    return fmt::format("batch {} x {}, {}/{} heads, D {}, {}", tokens.size(),
                       least == most ? std::to_string(most) : fmt::format("{}-{}", least, most), heads.q(), heads.kv,
                       heads.dim, to_string(type));
  }

  Heads heads;
  DType type;
  KvPlacing placing;
  std::vector<std::uint32_t> tokens, pages, slots;
  std::uint32_t all_pages = 0;
  float scale;
};

}  // namespace tandem::eval
