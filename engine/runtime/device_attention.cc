// The device's part of DecodeAttention: attention over the store's pages, over blocks chosen on the device and over
// KV that was fetched for it. What one kernel call for all rows asks of them is in device_work.cc, what it reads is put
// together in device_spans.cc; what its weights go into is in emitted_weights.cc.
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

void DecodeAttention::gather_chosen(const LayerContext& context, const AttendItem& item, const SelectionRef& selection,
                                    const FetchedRef* fetched, Op& op, DeviceWork& work) const {
  const ModelShape& shape = context.shape;
  const SequenceState& sequence = *context.batch[item.row];
  DeviceChosen c;
  c.row = item.row;
  c.layer = selection.layer;
  c.index = stores_.digests.get(selection.digests.id);
  c.scope = selection.scope;
  c.sequence = sequence.id;
  c.blocks = c.index.digests[context.layer];
  c.heads = {item.kv_heads.begin, std::min(item.kv_heads.end, shape.kv_heads)};
  c.own_only = item.own_only;
  work.own.push_back(c.index.selection.reads());
  op.access.push_back(work.own.back());
  if (selection.ready.lane != compute_) wait_for(op.after, selection.ready);
  if (fetched != nullptr) {
    c.staging = stores_.stagings.get(fetched->staging.id);
    c.part = fetched->part;
  } else {
    const Range blocks{c.index.tokens.begin / kPageTokens, blocks_for(c.index.digested(context.layer).end)};
    if (!device_.launches()) kv_.append_slots(sequence.id, context.layer, blocks, Tier::device, c.slots);
    kv_.append_access(sequence.id, context.layer, blocks, Tier::device, c.heads, false, op.access);
  }
  const std::uint32_t lists = selection.scope == Scope::query_head ? shape.group() : 1;
  c.most = std::min(c.blocks, lists * selection.blocks);
  if (fetched == nullptr) work.fixed[item.row].add_entries(c.heads, c.most * c.index.block / kPageTokens);
  attention_cost(std::uint64_t{c.most} * c.index.block * (c.heads.end - c.heads.begin), op.cost);
  op.cost.upper_bound = work.settles = true;
  work.chosen.push_back(std::move(c));
}

void DecodeAttention::gather_speculated(const LayerContext& context, const AttendItem& item, Op& op, DeviceWork& work) {
  const auto& speculated = std::get<Speculated>(item.pages.source);
  const SkewedIndex& index = stores_.skewed.get(speculated.index.id);
  const std::uint32_t half = index.half(context.layer);
  const Access access[2] = {index.chosen.reads(half, half + 1), index.staged.reads(half, half + 1)};
  op.access.insert(op.access.end(), access, access + 2);
  work.own.insert(work.own.end(), access, access + 2);
  wait_for(op.after, speculated.ready);
  attention_cost(std::uint64_t{index.most} * index.unit * context.shape.kv_heads, op.cost);
  op.cost.upper_bound = work.settles = true;
  work.speculated.push_back({item.row, context.layer, index});
}

void DecodeAttention::gather_residents(const LayerContext& context, const AttendItem& item, Op& op, DeviceWork& work) {
  const auto& blocks = std::get<ResidentBlocks>(item.pages.source);
  const std::uint32_t layer = context.layer;
  const ResidentSet& set = stores_.residents.get(blocks.set.id);
  if (set.residents(layer) == 0) return;
  DeviceResident r{item.row, layer, set, blocks.chosen_only && set.open(layer)};
  std::vector<Access> access = {set.pages.reads(layer, layer + 1)};
  const std::uint64_t tokens = std::uint64_t{set.residents(layer)} * set.block * context.shape.kv_heads;
  if (r.chosen_only) {
    access.insert(access.end(), {set.table.reads(layer, layer + 1), set.chosen.reads(layer, layer + 1)});
    attention_cost(tokens, op.cost);
    op.cost.upper_bound = work.settles = true;
  } else if (device_.launches()) {  // counted there with those that were chosen
    attention_cost(tokens, work.cost);
    work.settles = true;
  } else {
    attended_[item.row].tokens[static_cast<int>(Side::device)] += attention_cost(tokens, work.cost);
  }
  op.access.insert(op.access.end(), access.begin(), access.end());
  work.own.insert(work.own.end(), access.begin(), access.end());
  work.residents.push_back(std::move(r));
}

void DecodeAttention::gather_device(const LayerContext& context, const AttendItem& item, Op& op, DeviceWork& work) {
  const ModelShape& shape = context.shape;
  const SequenceState& sequence = *context.batch[item.row];
  const Range heads{item.kv_heads.begin, std::min(item.kv_heads.end, shape.kv_heads)};
  const std::size_t before = op.access.size();
  std::uint64_t tokens = 0;
  const auto append_access = [&](Range blocks) {
    kv_.append_access(sequence.id, context.layer, blocks, Tier::device, heads, false, op.access);
  };
  // A GPU's kernels list pages themselves.
  const auto append_runs = [&](const StaticTokens& attended) {
    DeviceRow& row = work.fixed[item.row];
    for (const Range& r : attended.ranges)
      if (r.begin < r.end) row.add_entries(heads, blocks_for(r.end) - r.begin / kPageTokens);
    if (device_.launches()) return row.tokens.add(heads, shape.kv_heads, attended.ranges);
    if (device_.shapes_only()) return;  // whose bodies do not run
    std::vector<PageRun> runs;
    append_static_runs(sequence, context.layer, attended, Tier::device, runs);
    row.pages.add(heads, shape.kv_heads, std::move(runs));
  };
  if (const auto* fixed = std::get_if<StaticTokens>(&item.pages.source)) {
    for (const Range& r : fixed->ranges) append_access({r.begin / kPageTokens, blocks_for(r.end)});
    append_runs(*fixed);
    tokens = fixed->count();
  } else if (const auto* heavy = std::get_if<HeavyRef>(&item.pages.source)) {
    const HeavySet& set = stores_.heavy.get(heavy->id);
    const std::uint32_t own = sequence.tokens - 1, held = set.held[context.layer];
    TANDEM_CHECK(heads == (Range{0, shape.kv_heads}), "surviving tokens are attended by all heads");
    append_access({own / kPageTokens, blocks_for(own + 1)});
    append_runs({{{own, own + 1}}});
    if (held > 0) set.append_access(context.layer, false, op.access);
    work.heavy.push_back({item.row, context.layer, held, set});
    tokens = held + 1;
  } else if (const auto* ahead = std::get_if<SelectedAhead>(&item.pages.source)) {
    const CacheRank& rank = stores_.ranks.get(ahead->rank.id);
    TANDEM_CHECK(heads == (Range{0, shape.kv_heads}) && rank.tokens[context.layer] > 0,
                 "nothing was selected for layer {}", context.layer);
    wait_for(op.after, rank.arrived[context.layer]);
    op.access.push_back(rank.packed.reads(context.layer, context.layer + 1));
    work.ahead.push_back({item.row, context.layer, rank});
    tokens = rank.tokens[context.layer];
  } else if (const auto* single = std::get_if<ChosenTokens>(&item.pages.source)) {
    TANDEM_CHECK(heads == (Range{0, shape.kv_heads}), "chosen tokens are attended by all heads");
    DeviceTokens own{item.row, stores_.choices.get(single->choice), sequence.id, {}, single->tokens};
    const Range pages{0, blocks_for(single->scored.end)};
    if (!device_.launches()) kv_.append_slots(sequence.id, context.layer, pages, Tier::device, own.slots);
    append_access(pages);
    op.access.push_back(own.choice.lists.reads());
    work.fixed[item.row].add_entries(heads, single->tokens);
    work.tokens.push_back(std::move(own));
    tokens = single->tokens;
  } else if (const auto* selection = std::get_if<SelectionRef>(&item.pages.source)) {
    gather_chosen(context, item, *selection, nullptr, op, work);
    return;
  } else if (std::holds_alternative<Speculated>(item.pages.source)) {
    gather_speculated(context, item, op, work);
    return;
  } else if (std::holds_alternative<ResidentBlocks>(item.pages.source)) {
    gather_residents(context, item, op, work);
    return;
  } else {
    const auto& fetched = std::get<FetchedRef>(item.pages.source);
    const Staging& staging = stores_.stagings.get(fetched.staging.id);
    wait_for(op.after, fetched.ready);
    op.access.push_back(staging.values.reads(fetched.part, fetched.part + 1));
    if (const auto* chosen = std::get_if<SelectionRef>(&fetched.tokens)) {
      work.own.push_back(op.access.back());
      gather_chosen(context, item, *chosen, &fetched, op, work);
      return;
    }
    tokens = std::get<StaticTokens>(fetched.tokens).count();
    work.fetched.push_back({item.row, staging, fetched.part, static_cast<std::uint32_t>(tokens / kPageTokens), heads});
  }
  work.own.insert(work.own.end(), op.access.begin() + static_cast<std::ptrdiff_t>(before), op.access.end());
  attended_[item.row].tokens[static_cast<int>(Side::device)] +=
      attention_cost(tokens * (heads.end - heads.begin), work.cost);
}

void DecodeAttention::submit_device(const LayerContext& context, std::span<const AttendItem* const> items,
                                    const std::vector<Emitted>& emitted, const DeviceBuffer& out,
                                    const DeviceBuffer& lse) {
  const ModelShape& shape = context.shape;
  const auto rows = static_cast<std::uint32_t>(context.batch.size());
  const auto shared = std::make_shared<DeviceWork>();  // by the body and its twins
  DeviceWork& work = *shared;
  work.fixed.resize(rows);
  for (std::uint32_t row = 0; row < rows; ++row) {
    work.fixed[row].sequence = context.batch[row]->id;
    work.fixed[row].entries.assign(shape.kv_heads, 0);
  }
  work.cost.work = Work::attention;
  work.cost.hbm = query_bytes(rows, shape.q_heads, shape.head_dim);
  Op op;
  op.name = "device attention";
  op.layer = context.layer;
  op.access = {forward_.q().reads(0, rows), out.writes(0, rows)};
  if (lse) op.access.push_back(lse.writes(0, rows));
  std::vector<std::size_t> score_offset(rows, kNoScores);
  for (const Emitted& e : emitted) {
    score_offset[e.row] = e.offset;
    work.cost.hbm += std::uint64_t{shape.q_heads} * (e.tokens.end - e.tokens.begin) * sizeof(float);
  }
  if (!emitted.empty()) op.access.push_back(scores_.writes());
  // A GPU's kernels name slot 0 where nothing is attended; they do not read it.
  if (device_.launches()) op.access.push_back(kv_.slot_access(Tier::device, 0, 1, Range{0, shape.kv_heads}, false));
  work.own = op.access;
  for (const AttendItem* item : items) gather_device(context, *item, op, work);
  work.check(shape.kv_heads, !emitted.empty());
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
  op.cost.kernels = work.kernels(!emitted.empty());
  if (work.settles) {
    op.stand_in = [this, shape, shared](BodyContext& ctx) { settle_device(ctx, shape, *shared, nullptr); };
  }
  op.launch = [&](LaunchContext& ctx) { launch_device(ctx, shape, context.layer, work, emitted, out, lse); };
  op.body = [this, shape, shared, rows, score_offset = std::move(score_offset), scores = scores_, out,
             lse](BodyContext& ctx) {
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
  for (const AttendItem* item : items) {
    const auto* fetched = std::get_if<FetchedRef>(&item->pages.source);
    if (fetched != nullptr) stores_.stagings.get(fetched->staging.id).read[fetched->part] = done;
    const auto* residents = std::get_if<ResidentBlocks>(&item->pages.source);
    if (residents != nullptr) stores_.residents.get(residents->set.id).read[context.layer] = done;
  }
}

}  // namespace tandem
