// The device's part of DecodeAttention: one operation for all rows, and the weights that it leaves. What its kernels
// take together and what its body reads is in device_work.cc.
#include <algorithm>
#include <memory>
#include <utility>

#include "engine/common/error.h"
#include "engine/kernels/attention.h"
#include "engine/kernels/paged_attention.h"
#include "engine/runtime/device_work.h"
#include "engine/runtime/host_parts.h"
#include "engine/runtime/layer_costs.h"

namespace tandem {
namespace {
constexpr std::size_t kNoScores = ~std::size_t{0};
}  // namespace

std::uint64_t DecodeAttention::attention_cost(std::uint64_t tokens, Cost& cost) const {
  const ModelShape& shape = forward_.shape();
  add_decode_attention(cost, tokens, kv_.shape().vector_bytes(), shape.group(), shape.head_dim);
  return tokens;
}

void DecodeAttention::gather(const LayerContext& context, const AttendItem& item, const Ranges& ranges, Op& op,
                             DeviceWork& work) {
  const ModelShape& shape = context.shape;
  const SequenceState& sequence = *context.batch[item.row];
  const Range heads{0, shape.kv_heads};
  const std::size_t before = op.access.size();
  wait_for(op.after, ranges.ready);
  if (page_tables_.moved(sequence.id, context.layer)) ++work.tables;
  DeviceRow& row = work.fixed[item.row];
  for (const Range& r : ranges.positions) {
    const Range blocks{r.begin / kPageTokens, blocks_for(r.end)};
    page_tables_.check(sequence.id, context.layer, blocks);
    kv_.append_access(sequence.id, context.layer, blocks, Tier::device, heads, false, op.access);
    row.entries += blocks.end - blocks.begin;
  }
  if (device_.is_gpu()) {  // kernels list pages themselves
    row.tokens.insert(row.tokens.end(), ranges.positions.begin(), ranges.positions.end());
  } else if (!device_.shapes_only()) {
    append_page_runs(sequence, context.layer, ranges, row.pages);
  }
  work.own.insert(work.own.end(), op.access.begin() + static_cast<std::ptrdiff_t>(before), op.access.end());
  attended_[item.row].tokens[static_cast<int>(Side::device)] +=
      attention_cost(std::uint64_t{ranges.count()} * shape.kv_heads, work.cost);
}

void DecodeAttention::gather(const LayerContext& context, const AttendItem& item, const Blocks& chosen, Op& op,
                             DeviceWork& work) const {
  const ModelShape& shape = context.shape;
  const SequenceState& sequence = *context.batch[item.row];
  DeviceBlocks b{
      item.row, {stores_.digests.get(chosen.digests.id), chosen, shape}, chosen.copy, sequence.id, item.own_only};
  if (chosen.copy) {
    wait_for(op.after, chosen.copy->ready);
    work.note_reader(chosen.copy->memory);
    work.own.push_back(chosen.copy->access);
    op.access.push_back(work.own.back());
  }
  work.own.push_back(b.chosen.index.selection.reads());
  op.access.push_back(work.own.back());
  if (chosen.ready.lane != compute_) wait_for(op.after, chosen.ready);
  if (!chosen.copy) {
    const Range blocks = b.chosen.page_range();
    // Pages that were not chosen may be elsewhere.
    if (!device_.is_gpu()) kv_.append_slots_or_none(sequence.id, context.layer, blocks, Tier::device, b.chosen.slots);
    kv_.append_access(sequence.id, context.layer, blocks, Tier::device, Range{0, shape.kv_heads}, false, op.access);
    work.fixed[item.row].entries += b.chosen.pages();
  }
  attention_cost(std::uint64_t{b.chosen.most} * b.chosen.index.block * shape.kv_heads, op.cost);
  op.cost.upper_bound = work.settles = true;
  work.blocks.push_back(std::move(b));
}

void DecodeAttention::gather(const LayerContext& context, const AttendItem& item, const Tokens& tokens, Op& op,
                             DeviceWork& work) {
  const ModelShape& shape = context.shape;
  const SequenceState& sequence = *context.batch[item.row];
  const Range heads{0, shape.kv_heads};
  const std::size_t before = op.access.size();
  DeviceTokens own{item.row, tokens, sequence.id, {}};
  const Range blocks{0, tokens.positions.empty() ? 0 : blocks_for(tokens.positions.back().end)};
  if (!device_.is_gpu()) kv_.append_slots(sequence.id, context.layer, blocks, Tier::device, own.slots);
  kv_.append_access(sequence.id, context.layer, blocks, Tier::device, heads, false, op.access);
  op.access.push_back(tokens.lists.reads());
  work.own.insert(work.own.end(), op.access.begin() + static_cast<std::ptrdiff_t>(before), op.access.end());
  work.fixed[item.row].entries += tokens.tokens;
  work.tokens.push_back(std::move(own));
  attended_[item.row].tokens[static_cast<int>(Side::device)] +=
      attention_cost(std::uint64_t{tokens.tokens} * shape.kv_heads, work.cost);
}

void DecodeAttention::gather(const LayerContext& context, const AttendItem& item, const Packed& packed, Op& op,
                             DeviceWork& work) {
  const ModelShape& shape = context.shape;
  TANDEM_CHECK(!packed.masks, "masks of packed tokens are read on the host");
  if (packed.tokens == 0) return;
  wait_for(op.after, packed.ready);
  work.note_reader(packed.memory);
  op.access.insert(op.access.end(), packed.access.begin(), packed.access.end());
  work.own.insert(work.own.end(), packed.access.begin(), packed.access.end());
  if (packed.count || packed.named) {
    attention_cost(std::uint64_t{packed.tokens} * shape.kv_heads, op.cost);
    op.cost.upper_bound = work.settles = true;
  } else {
    attention_cost(std::uint64_t{packed.tokens} * shape.kv_heads, work.cost);
  }
  work.packed.push_back({item.row, packed, item.weights.has_value()});
}

void DecodeAttention::submit_device(const LayerContext& context, std::span<const AttendItem* const> items,
                                    const Emission& emitted, const DeviceBuffer& out, const DeviceBuffer& lse) {
  const ModelShape& shape = context.shape;
  const auto rows = static_cast<std::uint32_t>(context.batch.size());
  const auto shared = std::make_shared<DeviceWork>();  // by the body and its twins
  DeviceWork& work = *shared;
  work.fixed.resize(rows);
  for (std::uint32_t row = 0; row < rows; ++row) work.fixed[row].sequence = context.batch[row]->id;
  work.cost.work = Work::attention;
  work.cost.hbm = query_bytes(rows, shape.q_heads, shape.head_dim);
  Op op("device attention", Cause::none, context.layer);
  op.access = {forward_.q().reads(0, rows), out.writes(0, rows)};
  if (lse) op.access.push_back(lse.writes(0, rows));
  std::vector<std::size_t> score_offset(rows, kNoScores);
  for (const EmittedWeights& e : emitted.rows) {
    score_offset[e.row] = e.offset;
    work.cost.hbm += std::uint64_t{shape.q_heads} * (e.tokens.end - e.tokens.begin) * sizeof(float);
  }
  if (!emitted.empty()) op.access.push_back(scores_.writes());
  // A GPU's kernels name slot 0 where nothing is attended; they do not read it.
  if (device_.is_gpu()) op.access.push_back(kv_.slot_access(Tier::device, 0, 1, Range{0, shape.kv_heads}, false));
  work.own = op.access;
  for (const AttendItem* item : items) {
    work.cost.looked_up += common_of(item->kv).found;
    std::visit([&](const auto& kv) { gather(context, *item, kv, op, work); }, item->kv);
  }
  work.check(!emitted.empty());
  for (const DevicePacked& p : work.packed) {
    if (device_.is_gpu() && work.counts_packed(p.in_pages())) {  // where a kernel counts, it counts all rows
      work.settles = true;
    } else if (!p.packed.count && !p.packed.named) {
      attended_[p.row].tokens[static_cast<int>(Side::device)] += std::uint64_t{p.packed.tokens} * shape.kv_heads;
    }
  }
  if (work.settles) {
    work.own.push_back(device_attended_.writes());
    op.access.push_back(work.own.back());
  }
  // What was chosen is in op.cost already, as an upper bound.
  const Cost chosen = op.cost;
  op.cost = work.cost;
  op.cost.hbm += chosen.hbm;
  op.cost.context += chosen.context;
  op.cost.flops += chosen.flops;
  op.cost.upper_bound = chosen.upper_bound;
  op.cost.kernels = work.kernels(!emitted.empty()) + work.tables;
  op.has_cost_only_part = work.settles;
  op.launch = [&](LaunchContext& ctx) { launch_device(ctx, shape, context.layer, work, emitted, out, lse); };
  op.body = [this, shape, shared, rows, score_offset = std::move(score_offset), scores = scores_, out,
             lse](BodyContext& ctx) {
    if (!ctx.computes()) return settle_device(ctx, shape, *shared, nullptr);
    std::vector<HeadSpans> spans = device_spans(ctx, shape, *shared);
    settle_device(ctx, shape, *shared, &spans);
    for (HeadSpans& own : spans) {
      if (score_offset[own.row] == kNoScores) continue;
      std::size_t tokens = 0;
      for (const KvSpan& span : own.spans) tokens += span.tokens;
      own.scores = ctx.write<float>(scores) + score_offset[own.row] + own.kv_head * shape.group() * tokens;
    }
    std::vector<float> discarded(lse ? 0 : std::size_t{rows} * shape.q_heads);
    attend_in_parts(pool_, shape, kv_.shape().type, spans, cut_parts(spans, kv_.shape().vector_bytes()),
                    ctx.read<float>(forward_.q()), ctx.write<float>(out),
                    lse ? ctx.write<float>(lse) : discarded.data());
  };
  const Event done = device_.submit(compute_, std::move(op));
  for (Event* reader : work.readers) *reader = done;
}

// The device's attention weights where a plan asks for them: which rows emit theirs, and where these lie until a
// mechanism takes them in (WeightsTaker).

DecodeAttention::Emission DecodeAttention::plan_emission(const LayerContext& context,
                                                         std::span<const AttendItem* const> items) {
  Emission emission;
  const std::size_t heads = context.shape.q_heads;
  std::size_t floats = 0;
  std::uint32_t most = 0, pages = 0;  // tokens that any row has room for; pages of the longest window
  for (const AttendItem* item : items) {
    if (!item->weights) continue;
    const auto* packed = std::get_if<Packed>(&item->kv);
    const WeightsTo& to = *item->weights;
    TANDEM_CHECK(emission.rows.empty() || (to.taker == emission.taker && emission.packed == (packed != nullptr)),
                 "the rows of a batch leave their weights alike");
    emission.taker = to.taker;
    emission.packed = packed != nullptr;
    const std::uint32_t room = to.taker->most_tokens(to.id);
    Range tokens{0, 1};
    if (packed != nullptr) {
      tokens.end += packed->tokens;  // and the step's own
    } else {
      const std::vector<Range>& ranges = std::get<Ranges>(item->kv).positions;
      const auto of_row = [item](const AttendItem* other) { return other->row == item->row; };
      TANDEM_CHECK(ranges.size() == 1 && ranges[0].end == context.batch[item->row]->tokens &&
                       std::count_if(items.begin(), items.end(), of_row) == 1,
                   "weights are averaged over the one device item of a row, all heads, up to the newest token");
      tokens = ranges[0];
      pages = std::max(pages, blocks_for(tokens.end) - tokens.begin / kPageTokens);
    }
    const std::uint32_t count = tokens.end - tokens.begin;
    TANDEM_CHECK(count <= room, "weights of {} tokens in room for {}", count, room);
    emission.rows.push_back({item->row, to.id, tokens, floats, count});
    floats += heads * room;
    most = std::max(most, room);
  }
  if (device_.is_gpu() && emission.packed) {  // own tokens' pages, then packed ones
    floats = context.batch.size() * heads * (std::size_t{1} + blocks_for(most - 1)) * kPageTokens;
  } else if (device_.is_gpu() && !emission.rows.empty()) {  // all rows at once, by the slots of their pages
    const std::size_t stride = std::size_t{pages} * kPageTokens;
    for (EmittedWeights& e : emission.rows) {
      e.stride = stride;
      e.offset = e.row * heads * stride + e.tokens.begin % kPageTokens;
    }
    floats = context.batch.size() * heads * most;  // of the longest window there will be
    TANDEM_CHECK(stride <= most, "scores of {} tokens in room for {}", stride, most);
  }
  if (floats * sizeof(float) > scores_.bytes()) scores_ = device_.allocate_device(floats * sizeof(float), "scores");
  return emission;
}

void DecodeAttention::take_emission(const LayerContext& context, const Emission& emission) {
  if (!emission.rows.empty()) emission.taker->take_weights(context, emission.rows, scores_, own_.lse);
}

}  // namespace tandem
