// Scores of a prompt's queries with the tokens that they see, for sums over queries.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "engine/kernels/attention.h"
#include "engine/kv/kv_store.h"

namespace tandem {

/// Of one KV head: several queries at a time, as heads of one group, so that keys are read once for them all and
/// kernels of many heads have as many. The bits of a score are those of token_scores() for its query alone.
class RowScores {
 public:
  /// shape.group: query heads of the KV head. most_tokens: that a query sees.
  RowScores(AttentionShape shape, std::uint32_t most_tokens)
      : shape_(shape), together_(rows_together(shape.group, most_tokens)) {
    queries_.resize(std::size_t{together_} * shape.group * shape.dim);
    scores_.resize(std::size_t{together_} * shape.group * most_tokens);
  }

  /// Rows [0, rows), of which row r sees the first `before` + r + 1 tokens. query(r): its queries [group][D].
  /// key_page(p): keys of tokens 16 p on, those of all rows' tokens are there. use(r, g, scores) is called for every
  /// row, in order, and head of the group, with the scores of what the row sees.
  template <class Query, class KeyPage, class Use>
  void each(std::uint32_t before, std::uint32_t rows, const Query& query, const KeyPage& key_page, const Use& use) {
    const std::size_t floats = std::size_t{shape_.group} * shape_.dim;
    for (std::uint32_t first = 0; first < rows; first += together_) {
      const std::uint32_t count = std::min(together_, rows - first), seen = before + first + count;  // by the last one
      for (std::uint32_t r = 0; r < count; ++r) std::copy_n(query(first + r), floats, queries_.data() + r * floats);
      for (auto page = static_cast<std::uint32_t>(spans_.size()); page * kPageTokens < seen; ++page)
        spans_.push_back({key_page(page), nullptr, kPageTokens, ~0u});
      spans_.back().tokens = seen - static_cast<std::uint32_t>(spans_.size() - 1) * kPageTokens;
      token_scores(queries_.data(), spans_, {count * shape_.group, shape_.dim, shape_.kv}, scores_.data());
      spans_.back().tokens = kPageTokens;
      for (std::uint32_t r = 0; r < count; ++r)
        for (std::uint32_t g = 0; g < shape_.group; ++g)
          use(first + r, g, scores_.data() + (std::size_t{r} * shape_.group + g) * seen);
    }
  }

 private:
  static std::uint32_t rows_together(std::uint32_t group, std::uint32_t most_tokens) {
    constexpr std::uint32_t kHeads = 32;                         // that token_scores() takes
    constexpr std::size_t kFloats = (std::size_t{2} << 20) / 4;  // of scores: a second-level cache
    const std::size_t fitting = kFloats / (std::size_t{group} * std::max(1u, most_tokens));
    return std::max(1u, std::min(kHeads / group, static_cast<std::uint32_t>(fitting)));
  }

  AttentionShape shape_;
  std::uint32_t together_;
  std::vector<float> queries_, scores_;
  std::vector<KvSpan> spans_;
};

}  // namespace tandem
