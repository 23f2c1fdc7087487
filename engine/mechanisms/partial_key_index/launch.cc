// InfiniGen's partial index, choice and fetch on a GPU: the twins of the bodies in partial_key_indexes.cc and
// fetch.cc.
#include <algorithm>
#include <vector>

#include "engine/device/launch_context.h"
#include "engine/mechanisms/partial_key_index/kernels/skewed.h"
#include "engine/mechanisms/partial_key_index/work.h"
#include "engine/runtime/launched_attention.h"
#include "engine/runtime/listed_fetch.h"

namespace tandem {

void PartialKeyIndexes::launch_speculation(LaunchContext& ctx, const ModelShape& shape, std::uint32_t layer,
                                           const float* queries /*[rows][Hq][D]*/,
                                           std::span<const SpeculatingRow> rows) const {
  std::size_t floats = 1;
  for (const SpeculatingRow& r : rows) floats = std::max(floats, std::size_t{shape.q_heads} * r.index.tokens[layer]);
  const std::size_t together = rows_together(attention_.score_floats(), floats, rows.size());
  auto* const scores = ctx.scratch<float>(together * floats);
  auto* const marks = rows.front().index.scope == Scope::query_head
                          ? ctx.scratch<std::uint32_t>(together * floats / shape.group() + 1)
                          : nullptr;
  for (std::size_t first = 0; first < rows.size(); first += together)
    launch_choices(ctx, shape, layer, queries, rows.subspan(first, std::min(together, rows.size() - first)), scores,
                   marks);
}

/// Of rows whose scores have room together: for each as many floats as it has tokens for all query heads, and where
/// these choose apart as many marks as it has units for all KV heads.
void PartialKeyIndexes::launch_choices(LaunchContext& ctx, const ModelShape& shape, std::uint32_t layer,
                                       const float* queries, std::span<const SpeculatingRow> rows, float* room,
                                       std::uint32_t* marks) const {
  std::vector<SkewedScores> requests;
  std::vector<SkewedChoice> choices;
  requests.reserve(rows.size() * shape.kv_heads);
  choices.reserve(rows.size());
  std::uint32_t most = 0, most_units = 0;
  for (const SpeculatingRow& r : rows) {
    const PartialKeyIndex& index = r.index;
    const std::uint32_t n = index.tokens[layer], units = n / index.unit;
    float* const scores = room;
    room += std::size_t{shape.q_heads} * n;
    for (std::uint32_t g = 0; g < shape.kv_heads; ++g) {
      const std::size_t head = std::size_t{g} * shape.group();
      requests.push_back({queries + (std::size_t{r.row} * shape.q_heads + head) * shape.head_dim,
                          ctx.read<float>(index.skew) + index.skew_offset(layer, g),
                          ctx.read<char>(index.keys) + index.keys_offset(layer, g), n, scores + head * n});
    }
    SkewedChoice choice{scores,     n,
                        index.unit, r.most,
                        r.alpha,    ctx.write<std::uint32_t>(index.chosen) + index.chosen_offset(layer, 0),
                        index.most, ctx.scratch<std::uint32_t>(shape.q_heads)};
    if (index.scope == Scope::layer) choice.sums = ctx.scratch<float>(units);
    if (index.scope == Scope::query_head) {
      choice.marks = marks;
      marks += std::size_t{shape.kv_heads} * units;
    }
    choices.push_back(choice);
    most = std::max(most, n);
    most_units = std::max(most_units, units);
  }
  const PartialKeyIndex& first = rows.front().index;
  const SkewedShape skewed{shape.group(), shape.head_dim, first.columns, first.shape.type};
  if (most > 0) {
    skewed_scores_cuda(ctx.pass(requests), static_cast<std::uint32_t>(requests.size()), most, skewed, ctx.stream());
  }
  const auto count = static_cast<std::uint32_t>(choices.size());
  const SkewedChoice* const uploaded = ctx.upload(choices);
  choose_skewed_cuda(uploaded, count, most_units, shape.kv_heads, shape.group(), first.scope, ctx.stream());
}

void PartialKeyIndexes::launch_units(LaunchContext& ctx, std::span<const SpeculatedRow> rows,
                                     std::uint32_t layer) const {
  const KvShape& shape = kv_.shape();
  const std::uint32_t unit = rows.front().index.unit;
  const std::uint32_t piece = std::min(unit, kPageTokens);  // tokens that are adjacent on the host
  const std::size_t bytes = piece * shape.vector_bytes();
  std::vector<UnitFetch> fetches;
  std::vector<void*> to;
  std::vector<std::span<const std::uint32_t>> pages;
  std::uint32_t most = 0;
  fetches.reserve(rows.size());
  to.reserve(rows.size());
  pages.reserve(rows.size());
  for (const SpeculatedRow& row : rows) pages.emplace_back(*row.pages);
  const std::vector<const std::uint32_t*> uploaded = ctx.upload_each(pages);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const PartialKeyIndex& index = rows[i].index;
    fetches.push_back({ctx.read<std::uint32_t>(index.chosen) + index.chosen_offset(layer, 0), index.most, uploaded[i],
                       static_cast<std::uint32_t>(index.staged_offset(layer, 0) / bytes)});
    to.push_back(ctx.write<char>(index.staged));
    most = std::max(most, index.most);
  }
  const auto count = static_cast<std::uint32_t>(rows.size());
  const FetchList list = make_fetch_list(ctx, count, 2 * shape.kv_heads * most * (unit / piece));
  list_units_cuda(ctx.pass(fetches), count, shape.kv_heads, unit,
                  static_cast<std::uint32_t>(kv_.host_buffer().bytes() / shape.slot_bytes()), list, ctx.stream());
  Cost without;
  without.pieces = 0;
  fetch_listed(ctx, list, bytes, ctx.read<char>(kv_.host_buffer()), to, without);
}

}  // namespace tandem
