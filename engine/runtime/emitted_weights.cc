// The device's attention weights where a plan asks for them: which rows emit theirs, and the averages that they go
// into. Attention mass is in heavy_ops.cc.
#include <algorithm>
#include <utility>

#include "engine/common/error.h"
#include "engine/device/launch_context.h"
#include "engine/kernels/attention_weights.h"
#include "engine/runtime/decode_attention.h"

namespace tandem {

std::vector<DecodeAttention::Emitted> DecodeAttention::plan_emission(const LayerContext& context,
                                                                     std::span<const AttendItem* const> items) {
  std::vector<Emitted> emitted;
  std::size_t floats = 0;
  for (const AttendItem* item : items) {
    if (item->survivors) {
      HeavySet& set = stores_.heavy.get(item->survivors->id);
      const std::uint32_t tokens = set.held[context.layer] + 1;
      emitted.push_back({item->row, nullptr, &set, {0, tokens}, floats, tokens});
      floats += std::size_t{context.shape.q_heads} * (set.room + 1);
      continue;
    }
    if (!item->average) continue;
    AttentionAverage& average = stores_.averages.get(item->average->id);
    const std::vector<Range>& ranges = std::get<Ranges>(item->kv).positions;
    const auto of_row = [item](const AttendItem* other) { return other->row == item->row; };
    TANDEM_CHECK(ranges.size() == 1 && ranges[0].end == context.batch[item->row]->tokens && item->kv_heads.begin == 0 &&
                     item->kv_heads.end >= context.shape.kv_heads &&
                     std::count_if(items.begin(), items.end(), of_row) == 1,
                 "weights are averaged over the one device item of a row, all heads, up to the newest token");
    TANDEM_CHECK(ranges[0].end - ranges[0].begin <= average.ring, "a window of {} tokens in a ring of {}",
                 ranges[0].end - ranges[0].begin, average.ring);
    emitted.push_back({item->row, &average, nullptr, ranges[0], floats, ranges[0].end - ranges[0].begin});
    floats += std::size_t{context.shape.q_heads} * average.ring;
  }
  if (device_.launches() && !emitted.empty() && emitted.front().heavy != nullptr) {  // as launch_heavy() reads them
    std::uint32_t most = 0;
    for (const Emitted& e : emitted) {
      TANDEM_CHECK(e.heavy != nullptr, "the rows of a batch gather mass alike");
      most = std::max(most, e.heavy->room);
    }
    floats = context.batch.size() * context.shape.q_heads * (std::size_t{1} + blocks_for(most)) * kPageTokens;
  } else if (device_.launches() && !emitted.empty()) {  // all rows at once, by the slots of their pages
    std::size_t stride = 0, most = 0;
    for (const Emitted& e : emitted) {
      TANDEM_CHECK(e.average != nullptr, "the rows of a batch average alike");
      stride = std::max<std::size_t>(stride, (blocks_for(e.tokens.end) - e.tokens.begin / kPageTokens) * kPageTokens);
      most = std::max<std::size_t>(most, e.average->ring);
    }
    for (Emitted& e : emitted) {
      e.stride = stride;
      e.offset = e.row * context.shape.q_heads * stride + e.tokens.begin % kPageTokens;
    }
    floats = context.batch.size() * context.shape.q_heads * most;  // of the longest window there will be
    TANDEM_CHECK(stride <= most, "scores of {} tokens in room for {}", stride, most);
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
    op.cost.hbm += 3 * values * sizeof(float);  // scores in, averages in and out
    op.cost.context += 2 * values * sizeof(float);
    op.cost.flops += 10 * values;
    op.access.push_back(device_lse_.reads(e.row, e.row + 1));
    average.append_window_access(layer, e.tokens, true, op.access);
    if ((e.tokens.end - 1) % kPageTokens == 0)  // a page of the ring is used again
      wait_for(op.after, average.copied_page(layer, e.tokens.end - 1));
  }
  op.body = [this, shape, layer, emitted, scores = scores_](BodyContext& ctx) {
    const float* from = ctx.read<float>(scores);
    pool_.parallel_for(emitted.size() * shape.q_heads, [&](std::size_t i) {
      const Emitted& e = emitted[i / shape.q_heads];
      const auto head = static_cast<std::uint32_t>(i % shape.q_heads);
      const float* row = from + e.offset + head * e.stride;
      const float lse = ctx.read<float>(device_lse_)[std::size_t{e.row} * shape.q_heads + head];
      float* window = ctx.write<float>(e.average->window) + e.average->window_offset(layer, head);
      window[(e.tokens.end - 1) % e.average->ring] = 0;  // the step's own token is new
      e.average->for_each_run(e.tokens, [&](std::uint32_t token, std::uint32_t at, std::uint32_t count) {
        blend_weights(row + (token - e.tokens.begin), lse, count, 1 - e.average->share, e.average->share, window + at);
      });
    });
  };
  op.launch = [&](LaunchContext& ctx) { launch_averages(ctx, shape, layer, emitted); };
  const Event done = device_.submit(compute_, std::move(op));
  for (const Emitted& e : emitted) e.average->updated[layer] = done;
}

void DecodeAttention::launch_averages(LaunchContext& ctx, const ModelShape& shape, std::uint32_t layer,
                                      const std::vector<Emitted>& emitted) const {
  const float share = emitted.front().average->share;
  std::vector<WeightBlend> blends;
  std::uint32_t most = 0;
  for (const Emitted& e : emitted) {
    TANDEM_CHECK(e.average->share == share, "the rows of a batch average alike");
    for (std::uint32_t head = 0; head < shape.q_heads; ++head) {
      const float* row = ctx.read<float>(scores_) + e.offset + head * e.stride;
      const float* lse = ctx.read<float>(device_lse_) + std::size_t{e.row} * shape.q_heads + head;
      float* window = ctx.write<float>(e.average->window) + e.average->window_offset(layer, head);
      e.average->for_each_run(e.tokens, [&](std::uint32_t token, std::uint32_t at, std::uint32_t count) {
        // The step's own token is new.
        blends.push_back({row + (token - e.tokens.begin), lse, window + at, e.stride, count, 1,
                          token + count == e.tokens.end ? 1u : 0u});
        most = std::max(most, count);
      });
    }
  }
  blend_weights_cuda(ctx.pass(blends), static_cast<std::uint32_t>(blends.size()), most, 1 - share, share, ctx.stream());
}

}  // namespace tandem
