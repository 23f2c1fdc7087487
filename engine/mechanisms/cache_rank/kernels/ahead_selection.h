// What a cache rank does for one KV head and layer (AsyncSpade, papers: section 4, figure 6): predict the group's next
// queries, score every token with them, take the best, and gather their keys and values.
#pragma once

#include <cstdint>
#include <span>

#include "engine/mechanisms/cache_rank/kernels/query_prediction.h"
#include "engine/mechanisms/token_choice/kernels/token_choice.h"

namespace tandem {

struct AheadWindow {
  const float* queries = nullptr;  // [group][room][D], by push_query
  std::uint32_t count = 0;         // that are there
  std::uint32_t position = 0;      // of the newest
};

/// The `keep` best tokens of the spans, or all where there are fewer, in ascending order, packed. Chooses as
/// choose_tokens() does.
void select_ahead(const PredictionRule& rule, const RopeTable& rope, const AheadWindow& window,
                  std::span<const KvSpan> spans, AttentionShape shape, std::uint32_t keep,
                  void* k /*[min(keep, tokens)][D]*/, void* v /*[min(keep, tokens)][D]*/);

/// The same on the GPU for a whole batch, of sequences and layers: predict_next_cuda, choose_tokens_cuda and
/// pack_tokens_cuda one after another, so that nothing of it comes to the host. All pointers are device memory.
struct AheadBatch {
  const QueryWindow* windows = nullptr;     // [rows]; out: the row of `queries`
  const TokenChoiceRow* choices = nullptr;  // [rows]
  const TokenPack* packs = nullptr;         // [rows]; chosen and room: those of `choices`
  std::uint32_t rows = 0, group = 1;
  std::uint32_t most = 0;  // the largest `keep`
  KvPages kv;
  PageLists lists;            // the rows' pages, full but for the last of each
  float* queries = nullptr;   // [rows][Hq][D]
  float* scores = nullptr;    // [rows][Hq][16 * lists.capacity]; to work in
  double* weights = nullptr;  // prediction_scratch(rule, rows, Hq)
};
void select_ahead_cuda(const PredictionRule& rule, const DeviceRope& rope, const AheadBatch& batch, CudaStream stream);

}  // namespace tandem
