// What a cache rank does for one KV head and layer (AsyncSpade, papers: section 4, figure 6): predict the group's next
// queries, score every token with them, take the best, and gather their keys and values.
#pragma once

#include <cstdint>
#include <span>

#include "engine/kernels/query_prediction.h"

namespace tandem {

struct AheadWindow {
  const float* queries = nullptr;  // [group][room][D], by push_query
  std::uint32_t count = 0;         // that are there
  std::uint32_t position = 0;      // of the newest
};

/// The `keep` best tokens of the spans, in ascending order, packed. Chooses as choose_tokens() does.
void select_ahead(const PredictionRule& rule, const RopeTable& rope, const AheadWindow& window,
                  std::span<const KvSpan> spans, AttentionShape shape, std::uint32_t keep, void* k /*[keep][D]*/,
                  void* v /*[keep][D]*/);

}  // namespace tandem
