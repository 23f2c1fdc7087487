// The device's part of DecodeAttention: attention over the store's pages, over blocks chosen on the device and over
// KV that was fetched for it. What its weights go into is in emitted_weights.cc.
#include <algorithm>
#include <optional>
#include <utility>

#include "engine/common/error.h"
#include "engine/kernels/attention.h"
#include "engine/runtime/decode_attention.h"
#include "engine/runtime/selection.h"

namespace tandem {
namespace {
constexpr std::size_t kNoScores = ~std::size_t{0};
}

/// Blocks that a row attends on the device and that only bodies know: a selection's, in the store or fetched.
struct DecodeAttention::DeviceChosen {
  std::uint32_t row = 0, layer = 0;
  DigestIndex index;
  Scope scope = Scope::query_head;
  std::uint32_t blocks = 0;          // that have a digest
  std::vector<std::uint32_t> slots;  // of their pages in the store
  std::optional<Staging> staging;    // where they were fetched to instead
  std::uint32_t part = 0;
  Range heads;
  bool own_only = true;
};

/// Whole blocks that were fetched.
struct DecodeAttention::DeviceFetched {
  std::uint32_t row = 0;
  Staging staging;
  std::uint32_t part = 0, blocks = 0;
  Range heads;
};

/// Blocks that are resident: all of them, or those of the latest choice, which only bodies know.
struct DecodeAttention::DeviceResident {
  std::uint32_t row = 0, layer = 0;
  ResidentSet set;  // as it is when submitted
  bool chosen_only = false;
};

/// Tokens that were fetched ahead; how many, only bodies know.
struct DecodeAttention::DeviceSpeculated {
  std::uint32_t row = 0, layer = 0;
  SkewedIndex index;  // as it is when submitted
};

/// Single tokens of the store's pages; which, only bodies know.
struct DecodeAttention::DeviceTokens {
  std::uint32_t row = 0;
  TokenChoice choice;
  std::vector<std::uint32_t> slots;  // of the pages that the candidates are in
};

/// Single tokens that a cache rank chose and sent, packed.
struct DecodeAttention::DeviceAhead {
  std::uint32_t row = 0, layer = 0;
  CacheRank rank;  // as it is when submitted
};

/// Tokens that survived, per KV head.
struct DecodeAttention::DeviceHeavy {
  std::uint32_t row = 0, layer = 0, held = 0;
  HeavySet set;
};

struct DecodeAttention::DeviceWork {
  std::vector<HeadWork> fixed;  // [row][KV head]: rows without device items give the empty partial
  std::vector<DeviceFetched> fetched;
  std::vector<DeviceHeavy> heavy;
  std::vector<DeviceTokens> tokens;
  std::vector<DeviceAhead> ahead;
  std::vector<DeviceChosen> chosen;
  std::vector<DeviceResident> residents;
  std::vector<DeviceSpeculated> speculated;
  std::vector<Access> own;  // what is touched whatever was chosen
  Cost cost;                // of that
  bool settles = false;     // what is attended is known to the body only
};

std::uint64_t DecodeAttention::attention_cost(std::uint64_t tokens, Cost& cost) const {
  const ModelShape& shape = forward_.shape();
  cost.hbm += tokens * 2 * kv_.shape().vector_bytes();
  cost.flops += tokens * 4 * shape.group() * shape.head_dim;
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
    for (std::uint32_t block = blocks.begin; block < blocks.end; ++block) {
      c.slots.push_back(kv_.slot(sequence.id, context.layer, block, Tier::device));
      TANDEM_CHECK(c.slots.back() != KvStore::kNoSlot, "block {} of layer {} is not on the device", block,
                   context.layer);
    }
    kv_.append_access(sequence.id, context.layer, blocks, Tier::device, c.heads, false, op.access);
  }
  const std::uint32_t lists = selection.scope == Scope::query_head ? shape.group() : 1;
  const std::uint32_t most = std::min(c.blocks, lists * selection.blocks);
  attention_cost(std::uint64_t{most} * c.index.block * (c.heads.end - c.heads.begin), op.cost);
  op.cost.upper_bound = work.settles = true;
  work.chosen.push_back(std::move(c));
}

void DecodeAttention::gather_speculated(const LayerContext& context, const AttendItem& item, Op& op, DeviceWork& work) {
  const auto& speculated = std::get<Speculated>(item.pages.source);
  const SkewedIndex& index = stores_.skewed.get(speculated.index.id);
  const std::uint32_t half = context.layer % 2;
  const Access access[2] = {index.chosen.reads(half, half + 1), index.staged.reads(half, half + 1)};
  op.access.insert(op.access.end(), access, access + 2);
  work.own.insert(work.own.end(), access, access + 2);
  if (std::find(op.after.begin(), op.after.end(), speculated.ready) == op.after.end())
    op.after.push_back(speculated.ready);
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
  if (const auto* fixed = std::get_if<StaticTokens>(&item.pages.source)) {
    for (const Range& r : fixed->ranges) {
      kv_.append_access(sequence.id, context.layer, {r.begin / kPageTokens, blocks_for(r.end)}, Tier::device, heads,
                        false, op.access);
    }
    for (std::uint32_t head = heads.begin; head < heads.end; ++head) {
      append_static_runs(sequence, context.layer, *fixed, Tier::device,
                         work.fixed[item.row * shape.kv_heads + head].runs);
    }
    tokens = fixed->count();
  } else if (const auto* heavy = std::get_if<HeavyRef>(&item.pages.source)) {
    const HeavySet& set = stores_.heavy.get(heavy->id);
    const std::uint32_t own = sequence.tokens - 1, held = set.held[context.layer];
    TANDEM_CHECK(heads == (Range{0, shape.kv_heads}), "surviving tokens are attended by all heads");
    kv_.append_access(sequence.id, context.layer, {own / kPageTokens, blocks_for(own + 1)}, Tier::device, heads, false,
                      op.access);
    for (std::uint32_t head = heads.begin; head < heads.end; ++head) {
      append_static_runs(sequence, context.layer, {{{own, own + 1}}}, Tier::device,
                         work.fixed[item.row * shape.kv_heads + head].runs);
    }
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
    DeviceTokens own{item.row, stores_.choices.get(single->choice), {}};
    const Range pages{0, blocks_for(single->scored.end)};
    own.slots.reserve(pages.end);
    for (std::uint32_t page = 0; page < pages.end; ++page)
      own.slots.push_back(kv_.slot(sequence.id, context.layer, page, Tier::device));
    kv_.append_access(sequence.id, context.layer, pages, Tier::device, heads, false, op.access);
    op.access.push_back(own.choice.lists.reads());
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

/// Appends the chosen blocks to the spans of their heads and counts them.
void DecodeAttention::append_chosen_spans(BodyContext& ctx, const ModelShape& shape, const DeviceChosen& c,
                                          std::vector<HeadSpans>& spans, std::vector<Access>& access,
                                          Cost& cost) const {
  const DigestIndex& index = c.index;
  const std::uint32_t* lists = index.selection.read<std::uint32_t>(ctx);
  const std::size_t v_after_k = kPageTokens * kv_.shape().vector_bytes();
  const char* from = c.staging ? ctx.read<char>(c.staging->values) : ctx.read<char>(kv_.device_buffer());
  std::vector<std::uint32_t> masks(c.blocks);
  std::uint64_t attended = 0;
  for (std::uint32_t g = c.heads.begin; g < c.heads.end; ++g) {
    chosen_masks(shape, c.scope, g, lists, index.room, masks);
    std::uint32_t page = 0;  // fetched so far
    for (std::uint32_t b = 0; b < c.blocks; ++b) {
      if (masks[b] == 0) continue;
      const Range tokens = index.block_tokens(b);
      for (std::uint32_t token = tokens.begin; token < tokens.end; token += kPageTokens, ++page) {
        const std::uint32_t count = std::min(kPageTokens, tokens.end - token);
        const char* k = nullptr;
        if (c.staging) {
          k = from + c.staging->chosen_offset(c.part, g, page);
        } else {
          const std::uint32_t slot = c.slots[(token - index.tokens.begin) / kPageTokens];
          k = from + kv_.k_offset(slot, g);
          access.push_back(kv_.slot_access(Tier::device, slot, 1, Range{g, g + 1}, false));
        }
        spans[c.row * shape.kv_heads + g].spans.push_back({k, k + v_after_k, count, c.own_only ? masks[b] : ~0u});
        attended += count;
      }
    }
  }
  ctx.write<std::uint64_t>(device_attended_)[c.row] += attention_cost(attended, cost);
}

/// Spans of every row and KV head: pages known before, then fetched and resident ones, then what was chosen.
std::vector<HeadSpans> DecodeAttention::resolve_device(BodyContext& ctx, const ModelShape& shape,
                                                       const DeviceWork& work) {
  std::vector<HeadSpans> spans(work.fixed.size());
  const std::size_t vector_bytes = kv_.shape().vector_bytes();
  const bool any = std::any_of(work.fixed.begin(), work.fixed.end(), [](const HeadWork& w) { return !w.runs.empty(); });
  const char* pages = any ? ctx.read<char>(kv_.device_buffer()) : nullptr;
  pool_.parallel_for(work.fixed.size(), [&](std::size_t i) {
    const HeadWork& head = work.fixed[i];
    spans[i].row = head.row;
    spans[i].kv_head = head.kv_head;
    spans[i].spans.reserve(head.runs.size());
    for (const PageRun& run : head.runs) {
      const std::size_t at = run.first * vector_bytes;
      spans[i].spans.push_back({pages + kv_.k_offset(run.slot, head.kv_head) + at,
                                pages + kv_.v_offset(run.slot, head.kv_head) + at, run.tokens, run.head_mask});
    }
  });
  for (const DeviceFetched& f : work.fetched) {
    const char* from = ctx.read<char>(f.staging.values);
    for (std::uint32_t g = f.heads.begin; g < f.heads.end; ++g) {
      for (std::uint32_t block = 0; block < f.blocks; ++block) {
        const char* k = from + f.staging.block_offset(f.part, block, g);
        spans[f.row * shape.kv_heads + g].spans.push_back({k, k + kPageTokens * vector_bytes, kPageTokens, ~0u});
      }
    }
  }
  for (const DeviceHeavy& h : work.heavy) {
    if (h.held == 0) continue;
    const char *keys = ctx.read<char>(h.set.keys), *values = ctx.read<char>(h.set.values);
    for (std::uint32_t g = 0; g < shape.kv_heads; ++g) {
      const std::size_t at = h.set.list(h.layer, g) * vector_bytes;
      spans[h.row * shape.kv_heads + g].spans.push_back({keys + at, values + at, h.held, ~0u});
    }
  }
  for (const DeviceTokens& t : work.tokens) {
    const char* from = ctx.read<char>(kv_.device_buffer());
    for (std::uint32_t g = 0; g < shape.kv_heads; ++g) {
      const std::uint32_t* list = ctx.read<std::uint32_t>(t.choice.lists) + t.choice.list(g);
      for (std::uint32_t i = 1; i <= list[0]; ++i) {
        const std::size_t at = list[i] % kPageTokens * vector_bytes;
        const std::uint32_t slot = t.slots[list[i] / kPageTokens];
        spans[t.row * shape.kv_heads + g].spans.push_back(
            {from + kv_.k_offset(slot, g) + at, from + kv_.v_offset(slot, g) + at, 1, ~0u});
      }
    }
  }
  for (const DeviceAhead& a : work.ahead) {
    for (std::uint32_t g = 0; g < shape.kv_heads; ++g) {
      const char* k = ctx.read<char>(a.rank.packed) + a.rank.packed_offset(a.layer, g);
      spans[a.row * shape.kv_heads + g].spans.push_back({k, k + a.rank.half_bytes(), a.rank.tokens[a.layer], ~0u});
    }
  }
  Cost cost = work.cost;
  for (const DeviceResident& r : work.residents) {
    for (std::uint32_t g = 0; g < shape.kv_heads; ++g) {
      const std::uint64_t tokens = LayerAhead::append_resident_spans(ctx, r.set, r.layer, g, r.chosen_only,
                                                                     spans[r.row * shape.kv_heads + g].spans);
      if (r.chosen_only) ctx.write<std::uint64_t>(device_attended_)[r.row] += attention_cost(tokens, cost);
    }
  }
  for (const DeviceSpeculated& s : work.speculated) {
    const auto* chosen = ctx.read<std::uint32_t>(s.index.chosen);
    const char* staged = ctx.read<char>(s.index.staged);
    for (std::uint32_t g = 0; g < shape.kv_heads; ++g) {
      const std::uint32_t tokens = chosen[s.index.chosen_offset(s.layer, g)] * s.index.unit;
      const char* k = staged + s.index.staged_offset(s.layer, g);
      spans[s.row * shape.kv_heads + g].spans.push_back({k, k + s.index.half_bytes() / 2, tokens, ~0u});
      ctx.write<std::uint64_t>(device_attended_)[s.row] += attention_cost(tokens, cost);
    }
  }
  if (!work.settles) return spans;
  std::vector<Access> access = work.own;
  for (const DeviceChosen& c : work.chosen) append_chosen_spans(ctx, shape, c, spans, access, cost);
  ctx.settle(cost, std::move(access));
  return spans;
}

void DecodeAttention::submit_device(const LayerContext& context, std::span<const AttendItem* const> items,
                                    const std::vector<Emitted>& emitted, const DeviceBuffer& out,
                                    const DeviceBuffer& lse) {
  const ModelShape& shape = context.shape;
  const auto rows = static_cast<std::uint32_t>(context.batch.size());
  DeviceWork work;
  work.fixed.reserve(std::size_t{rows} * shape.kv_heads);
  for (std::uint32_t row = 0; row < rows; ++row) {
    for (std::uint32_t head = 0; head < shape.kv_heads; ++head) work.fixed.push_back({row, head, {}});
  }
  work.cost.work = Work::attention;
  work.cost.hbm = std::uint64_t{2} * rows * shape.q_heads * shape.head_dim * sizeof(float);
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
  work.own = op.access;
  for (const AttendItem* item : items) gather_device(context, *item, op, work);
  if (work.settles) {
    work.own.push_back(device_attended_.writes());
    op.access.push_back(work.own.back());
  }
  // What was chosen is in op.cost already, as an upper bound.
  const Cost chosen = op.cost;
  op.cost = work.cost;
  op.cost.hbm += chosen.hbm;
  op.cost.flops += chosen.flops;
  op.cost.upper_bound = chosen.upper_bound;
  if (work.settles) {
    op.stand_in = [this, shape, work](BodyContext& ctx) { resolve_device(ctx, shape, work); };
  }
  op.body = [this, shape, work = std::move(work), score_offset = std::move(score_offset), scores = scores_, out,
             lse](BodyContext& ctx) {
    const std::vector<HeadSpans> spans = resolve_device(ctx, shape, work);
    const AttentionShape group{shape.group(), shape.head_dim, kv_.shape().type};
    const float* query = ctx.read<float>(forward_.q());
    float* o = ctx.write<float>(out);
    std::vector<float> discarded(lse ? 0 : spans.size() * shape.group());
    float* sums = lse ? ctx.write<float>(lse) : discarded.data();
    pool_.parallel_for(spans.size(), [&](std::size_t i) {
      const HeadSpans& own = spans[i];
      const std::size_t head = std::size_t{own.row} * shape.q_heads + own.kv_head * shape.group();
      const float* q = query + head * shape.head_dim;
      if (score_offset[own.row] == kNoScores) {
        partial_attention(q, own.spans, group, o + head * shape.head_dim, sums + head);
        return;
      }
      std::size_t tokens = 0;
      for (const KvSpan& span : own.spans) tokens += span.tokens;
      partial_attention_with_scores(
          q, own.spans, group, o + head * shape.head_dim, sums + head,
          ctx.write<float>(scores) + score_offset[own.row] + own.kv_head * shape.group() * tokens);
    });
  };
  const Event done = device_.submit(compute_, std::move(op));
  for (const AttendItem* item : items) {
    const auto* fetched = std::get_if<FetchedRef>(&item->pages.source);
    if (fetched != nullptr) stores_.stagings.get(fetched->staging.id).read[fetched->part] = done;
    const auto* speculated = std::get_if<Speculated>(&item->pages.source);
    if (speculated != nullptr) stores_.skewed.get(speculated->index.id).read[context.layer % 2] = done;
    const auto* residents = std::get_if<ResidentBlocks>(&item->pages.source);
    if (residents != nullptr) stores_.residents.get(residents->set.id).read[context.layer] = done;
  }
}

}  // namespace tandem
