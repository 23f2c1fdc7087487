// From what was gathered for attention on the device to the spans that its kernel reads.
#include <algorithm>
#include <utility>

#include "engine/runtime/device_work.h"
#include "engine/runtime/selection.h"

namespace tandem {

/// Counts the chosen blocks, and appends them to the spans of their heads. Without `out` and without a look at
/// accesses, sizes alone are wanted: those follow from sets of blocks, and no page is listed.
void DecodeAttention::resolve_chosen(BodyContext& ctx, const ModelShape& shape, const DeviceChosen& c,
                                     std::vector<HeadSpans>* out, std::vector<Access>& access, Cost& cost) const {
  const DigestIndex& index = c.index;
  const std::uint32_t* lists = index.selection.read<std::uint32_t>(ctx);
  std::uint64_t attended = 0;
  if (out == nullptr && (c.staging || !ctx.lists_access())) {
    BlockSet set(c.blocks);
    for (std::uint32_t g = c.heads.begin; g < c.heads.end; ++g) {
      set.clear();
      add_chosen(shape, c.scope, g, lists, index.room, set);
      attended += index.tokens_of(set, c.blocks);
    }
    ctx.write<std::uint64_t>(device_attended_)[c.row] += attention_cost(attended, cost);
    return;
  }
  const std::size_t v_after_k = kPageTokens * kv_.shape().vector_bytes();
  const char* from = c.staging ? ctx.read<char>(c.staging->values) : ctx.read<char>(kv_.device_buffer());
  std::vector<std::uint32_t> masks(c.blocks);
  for (std::uint32_t g = c.heads.begin; g < c.heads.end; ++g) {
    chosen_masks(shape, c.scope, g, lists, index.room, masks);
    std::uint32_t page = 0;  // fetched so far
    for (std::uint32_t b = 0; b < c.blocks; ++b) {
      if (masks[b] == 0) continue;
      const Range tokens = index.block_tokens(b);
      for (std::uint32_t token = tokens.begin; token < tokens.end; token += kPageTokens, ++page) {
        const std::uint32_t count = std::min(kPageTokens, tokens.end - token);
        attended += count;
        const char* k = nullptr;
        if (c.staging) {
          k = from + c.staging->chosen_offset(c.part, g, page);
        } else {
          const std::uint32_t slot = c.slots[(token - index.tokens.begin) / kPageTokens];
          k = from + kv_.k_offset(slot, g);
          if (ctx.lists_access()) access.push_back(kv_.slot_access(Tier::device, slot, 1, Range{g, g + 1}, false));
        }
        if (out == nullptr) continue;
        (*out)[c.row * shape.kv_heads + g].spans.push_back({k, k + v_after_k, count, c.own_only ? masks[b] : ~0u});
      }
    }
  }
  ctx.write<std::uint64_t>(device_attended_)[c.row] += attention_cost(attended, cost);
}

/// Spans of every row and KV head, without chosen blocks: whole pages that were fetched, which are older than those
/// that stay, so that what attends everything does so in the order of positions; the store's pages; then what is
/// packed.
std::vector<HeadSpans> DecodeAttention::device_spans(BodyContext& ctx, const ModelShape& shape,
                                                     const DeviceWork& work) {
  std::vector<HeadSpans> spans(work.fixed.size() * shape.kv_heads);
  const std::size_t vector_bytes = kv_.shape().vector_bytes();
  for (const DeviceFetched& f : work.fetched) {
    const char* from = ctx.read<char>(f.staging.values);
    for (std::uint32_t g = f.heads.begin; g < f.heads.end; ++g) {
      for (std::uint32_t block = 0; block < f.blocks; ++block) {
        const char* k = from + f.staging.block_offset(f.part, block, g);
        spans[f.row * shape.kv_heads + g].spans.push_back({k, k + kPageTokens * vector_bytes, kPageTokens, ~0u});
      }
    }
  }
  const bool any =
      std::any_of(work.fixed.begin(), work.fixed.end(), [](const DeviceRow& row) { return !row.pages.empty(); });
  const char* pages = any ? ctx.read<char>(kv_.device_buffer()) : nullptr;
  pool_.parallel_for(spans.size(), [&](std::size_t i) {
    const auto row = static_cast<std::uint32_t>(i / shape.kv_heads),
               head = static_cast<std::uint32_t>(i % shape.kv_heads);
    const std::vector<PageRun>& runs = work.fixed[row].pages.runs(head);
    spans[i].row = row;
    spans[i].kv_head = head;
    spans[i].spans.reserve(spans[i].spans.size() + runs.size());
    for (const PageRun& run : runs) {
      const std::size_t at = run.first * vector_bytes;
      spans[i].spans.push_back({pages + kv_.k_offset(run.slot, head) + at, pages + kv_.v_offset(run.slot, head) + at,
                                run.tokens, run.head_mask});
    }
  });
  for (const DeviceHeavy& h : work.heavy) {
    if (h.held == 0) continue;
    for (std::uint32_t g = 0; g < shape.kv_heads; ++g) {
      const char* k = ctx.read<char>(h.set.kv) + h.set.kv_offset(h.layer, g);
      spans[h.row * shape.kv_heads + g].spans.push_back({k, k + h.set.half_bytes(), h.held, ~0u});
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
  for (const DeviceResident& r : work.residents)
    for (std::uint32_t g = 0; g < shape.kv_heads; ++g)
      LayerAhead::append_resident_spans(ctx, r.set, r.layer, g, r.chosen_only, spans[r.row * shape.kv_heads + g].spans);
  for (const DeviceSpeculated& s : work.speculated) {
    const auto* chosen = ctx.read<std::uint32_t>(s.index.chosen);
    const char* staged = ctx.read<char>(s.index.staged);
    for (std::uint32_t g = 0; g < shape.kv_heads; ++g) {
      const std::uint32_t tokens = chosen[s.index.chosen_offset(s.layer, g)] * s.index.unit;
      const char* k = staged + s.index.staged_offset(s.layer, g);
      spans[s.row * shape.kv_heads + g].spans.push_back({k, k + s.index.half_bytes() / 2, tokens, ~0u});
    }
  }
  return spans;
}

/// Settles what data decides, and appends the chosen blocks to `spans` where there are any (a prediction needs sizes
/// only).
void DecodeAttention::settle_device(BodyContext& ctx, const ModelShape& shape, const DeviceWork& work,
                                    std::vector<HeadSpans>* spans) {
  if (!work.settles) return;
  Cost cost = work.cost;
  for (const DeviceResident& r : work.residents) {
    if (!r.chosen_only) continue;
    const std::uint64_t tokens = LayerAhead::chosen_resident_tokens(ctx, r.set, r.layer);
    ctx.write<std::uint64_t>(device_attended_)[r.row] += attention_cost(tokens, cost);
  }
  for (const DeviceSpeculated& s : work.speculated) {
    const auto* chosen = ctx.read<std::uint32_t>(s.index.chosen);
    std::uint64_t tokens = 0;
    for (std::uint32_t g = 0; g < shape.kv_heads; ++g)
      tokens += std::uint64_t{chosen[s.index.chosen_offset(s.layer, g)]} * s.index.unit;
    ctx.write<std::uint64_t>(device_attended_)[s.row] += attention_cost(tokens, cost);
  }
  std::vector<Access> access;
  if (ctx.lists_access()) access = work.own;
  for (const DeviceChosen& c : work.chosen) resolve_chosen(ctx, shape, c, spans, access, cost);
  ctx.settle(cost, std::move(access));
}

}  // namespace tandem
