#include "engine/mechanisms/cache_rank/kernels/ahead_selection.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace tandem {

void select_ahead(const PredictionRule& rule, const RopeTable& rope, const AheadWindow& window,
                  std::span<const KvSpan> spans, AttentionShape shape, std::uint32_t keep, void* k, void* v) {
  std::vector<float> query(std::size_t{shape.group} * shape.dim);
  predict_next(rule, rope, window.queries, shape.group, shape.dim, window.count, window.position, query.data());
  std::uint32_t tokens = 0;
  for (const KvSpan& one : spans) tokens += one.tokens;
  keep = std::min(keep, tokens);
  std::vector<std::uint32_t> chosen(keep);
  choose_tokens(query.data(), spans, shape, keep, chosen.data());
  const std::size_t bytes = shape.dim * size_of(shape.kv);
  std::uint32_t before = 0;  // tokens of the spans already passed
  std::size_t span = 0;
  for (std::uint32_t i = 0; i < keep; ++i) {
    while (chosen[i] >= before + spans[span].tokens) before += spans[span++].tokens;
    const std::size_t at = (chosen[i] - before) * bytes;
    std::memcpy(static_cast<char*>(k) + i * bytes, static_cast<const char*>(spans[span].k) + at, bytes);
    std::memcpy(static_cast<char*>(v) + i * bytes, static_cast<const char*>(spans[span].v) + at, bytes);
  }
}

}  // namespace tandem
