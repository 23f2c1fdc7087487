// The device's attention weights where a plan asks for them: which rows emit theirs, and the averages that they go
// into. Attention mass is in heavy_ops.cc.
#include <algorithm>
#include <utility>

#include "engine/common/error.h"
#include "engine/kernels/attention_weights.h"
#include "engine/runtime/decode_attention.h"

namespace tandem {

std::vector<DecodeAttention::Emitted> DecodeAttention::plan_emission(const LayerContext& context,
                                                                     std::span<const AttendItem* const> items) {
  std::vector<Emitted> emitted;
  std::size_t floats = 0;
  for (const AttendItem* item : items) {
    if (const auto* heavy = std::get_if<HeavyRef>(&item->pages.source)) {
      HeavySet& set = stores_.heavy.get(heavy->id);
      emitted.push_back({item->row, nullptr, &set, {0, set.held[context.layer] + 1}, floats});
      floats += std::size_t{context.shape.q_heads} * (set.room + 1);
      continue;
    }
    if (!item->average) continue;
    AttentionAverage& average = stores_.averages.get(item->average->id);
    const std::vector<Range>& ranges = std::get<StaticTokens>(item->pages.source).ranges;
    const auto of_row = [item](const AttendItem* other) { return other->row == item->row; };
    TANDEM_CHECK(ranges.size() == 1 && ranges[0].end == context.batch[item->row]->tokens && item->kv_heads.begin == 0 &&
                     item->kv_heads.end >= context.shape.kv_heads &&
                     std::count_if(items.begin(), items.end(), of_row) == 1,
                 "weights are averaged over the one device item of a row, all heads, up to the newest token");
    TANDEM_CHECK(ranges[0].end - ranges[0].begin <= average.ring, "a window of {} tokens in a ring of {}",
                 ranges[0].end - ranges[0].begin, average.ring);
    emitted.push_back({item->row, &average, nullptr, ranges[0], floats});
    floats += std::size_t{context.shape.q_heads} * average.ring;
  }
  if (floats * sizeof(float) > scores_.bytes()) scores_ = device_.allocate_device(floats * sizeof(float), "scores");
  return emitted;
}

void DecodeAttention::submit_emitted(const LayerContext& context, const std::vector<Emitted>& emitted) {
  std::vector<Emitted> averages, heavy;
  for (const Emitted& e : emitted) (e.heavy != nullptr ? heavy : averages).push_back(e);
  if (!averages.empty()) submit_averages(context, std::move(averages));
  if (!heavy.empty()) submit_heavy(context, heavy);
}

void DecodeAttention::submit_averages(const LayerContext& context, std::vector<Emitted> emitted) {
  const ModelShape& shape = context.shape;
  const std::uint32_t layer = context.layer;
  Op op;
  op.name = "update averages";
  op.layer = layer;
  op.access = {scores_.reads()};
  for (const Emitted& e : emitted) {
    AttentionAverage& average = *e.average;
    const std::uint64_t values = std::uint64_t{shape.q_heads} * (e.tokens.end - e.tokens.begin);
    op.cost.hbm += 3 * values * sizeof(float);
    op.cost.flops += 10 * values;
    op.access.push_back(device_lse_.reads(e.row, e.row + 1));
    average.append_window_access(layer, e.tokens, true, op.access);
    if ((e.tokens.end - 1) % kPageTokens == 0) {  // a page of the ring is used again
      if (const Event copied = average.copied_page(layer, e.tokens.end - 1); copied.valid()) op.after.push_back(copied);
    }
  }
  op.body = [this, shape, layer, emitted, scores = scores_](BodyContext& ctx) {
    const float* from = ctx.read<float>(scores);
    pool_.parallel_for(emitted.size() * shape.q_heads, [&](std::size_t i) {
      const Emitted& e = emitted[i / shape.q_heads];
      const auto head = static_cast<std::uint32_t>(i % shape.q_heads);
      const std::uint32_t tokens = e.tokens.end - e.tokens.begin;
      const float* row = from + e.offset + std::size_t{head} * tokens;
      const float lse = ctx.read<float>(device_lse_)[std::size_t{e.row} * shape.q_heads + head];
      float* window = ctx.write<float>(e.average->window) + e.average->window_offset(layer, head);
      window[(e.tokens.end - 1) % e.average->ring] = 0;  // the step's own token is new
      e.average->for_each_run(e.tokens, [&](std::uint32_t token, std::uint32_t at, std::uint32_t count) {
        blend_weights(row + (token - e.tokens.begin), lse, count, 1 - e.average->share, e.average->share, window + at);
      });
    });
  };
  const Event done = device_.submit(compute_, std::move(op));
  for (const Emitted& e : emitted) e.average->updated[layer] = done;
}

}  // namespace tandem
