// A cache rank that is another stream of the GPU (AsyncSpade section 4.1): the queries into their windows, and the
// choice from windows to packed keys and values. The twin of push_queries() and choose_ahead().
#include <algorithm>
#include <vector>

#include "engine/device/launch_context.h"
#include "engine/mechanisms/cache_rank/kernels/query_prediction.h"
#include "engine/mechanisms/cache_rank/work.h"
#include "engine/runtime/launched_attention.h"

namespace tandem {
namespace {

DeviceRope device_rope(LaunchContext& ctx, const PredictionRule& rule, const RopeTable& rope) {
  if (!rule.pre_rope) return {};
  return {ctx.upload(rope.inverse_frequency), rope.scale};
}

}  // namespace

void CacheRanks::launch_pushes(LaunchContext& ctx, Range layers, const std::vector<Selection>& work) const {
  const PredictionRule& rule = work.front().rank.rule;
  const DeviceRope rope = device_rope(ctx, rule, attention_.rope_table());
  std::uint32_t most = 0;
  for (const Selection& w : work) most = std::max(most, w.pushed());
  // One after another: of a prompt, several queries go into each window.
  for (std::uint32_t i = 0; i < most; ++i) {
    std::vector<QueryPush> pushes;
    for (const Selection& w : work) {
      if (i >= w.pushed()) continue;
      const CacheRank& rank = w.rank;
      const std::uint32_t position = w.positions.begin + i;
      for (std::uint32_t layer = layers.begin; layer < layers.end; ++layer) {
        const std::size_t at = std::size_t{layer} * w.slots + position % w.slots;
        pushes.push_back({ctx.read<float>(w.from) + at * rank.width(),
                          rank.window.write<float>(ctx) + rank.window_offset(layer), position});
      }
    }
    push_queries_cuda(rule, rope, ctx.pass(pushes), static_cast<std::uint32_t>(pushes.size()),
                      attention_.shape().q_heads, attention_.shape().head_dim, ctx.stream());
  }
}

void CacheRanks::launch_choice(LaunchContext& ctx, Range layers, const std::vector<Selection>& work) const {
  struct Row {
    const Selection* work = nullptr;
    std::uint32_t layer = 0;
    const std::vector<std::uint32_t>* slots = nullptr;
  };
  const ModelShape& shape = attention_.shape();
  const PredictionRule& rule = work.front().rank.rule;
  std::vector<Row> all;
  std::size_t pages = 1;
  for (std::uint32_t layer = layers.begin; layer < layers.end; ++layer) {
    for (const Selection& w : work) {
      if (w.keep == 0) continue;
      all.push_back({&w, layer, &w.at[layer - layers.begin]});
      pages = std::max(pages, all.back().slots->size());
    }
  }
  if (all.empty()) return;
  const std::size_t together =
      rows_together(attention_.score_floats(), shape.q_heads * pages * kPageTokens, all.size());
  const DeviceRope rope = device_rope(ctx, rule, attention_.rope_table());
  auto* const queries = ctx.scratch<float>(together * shape.q_heads * shape.head_dim);
  auto* const scores = ctx.scratch<float>(together * shape.q_heads * pages * kPageTokens);
  auto* const weights =
      ctx.scratch<double>(prediction_scratch(rule, static_cast<std::uint32_t>(together), shape.q_heads));
  for (std::size_t first = 0; first < all.size(); first += together) {
    const std::span<const Row> rows(all.data() + first, std::min(together, all.size() - first));
    AheadBatch batch;
    batch.rows = static_cast<std::uint32_t>(rows.size());
    batch.group = shape.group();
    batch.kv = device_pages(ctx, kv_);
    std::vector<QueryWindow> windows;
    std::vector<TokenChoiceRow> choices;
    std::vector<TokenPack> packs;
    std::vector<WholePages> lists;
    std::vector<std::span<const std::uint32_t>> slots_of;
    slots_of.reserve(rows.size());
    for (const Row& row : rows) slots_of.emplace_back(*row.slots);
    const std::vector<const std::uint32_t*> uploaded = ctx.upload_each(slots_of);
    windows.reserve(rows.size());
    choices.reserve(rows.size());
    packs.reserve(rows.size());
    lists.reserve(rows.size());
    for (const Row& row : rows) {
      const CacheRank& rank = row.work->rank;
      const std::uint32_t keep = row.work->keep;
      auto* const chosen = ctx.scratch<std::uint32_t>(shape.kv_heads * (1 + std::size_t{rank.most}));
      windows.push_back({rank.window.write<float>(ctx) + rank.window_offset(row.layer), row.work->known,
                         row.work->positions.end - 1, queries + windows.size() * shape.q_heads * shape.head_dim});
      choices.push_back({row.work->end, keep, chosen, rank.most});
      const std::uint32_t* const slots = uploaded[lists.size()];
      lists.push_back({row.work->end, nullptr, slots});
      packs.push_back({chosen, rank.most, slots, ctx.write<char>(rank.packed) + rank.packed_offset(row.layer, 0)});
      batch.most = std::max(batch.most, keep);
    }
    batch.windows = ctx.upload(windows);
    batch.choices = ctx.upload(choices);
    batch.packs = ctx.upload(packs);
    batch.lists = list_whole_pages(ctx, lists, false, static_cast<std::uint32_t>(pages));
    batch.queries = queries;
    batch.scores = scores;
    batch.weights = weights;
    select_ahead_cuda(rule, rope, batch, ctx.stream());
  }
}

}  // namespace tandem
