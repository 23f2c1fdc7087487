// The host's part of DecodeAttention: partial attention over pages and packed tokens in host memory.
#include <algorithm>
#include <utility>

#include "engine/common/error.h"
#include "engine/runtime/decode_attention.h"
#include "engine/runtime/of_heads.h"
#include "engine/runtime/packed_spans.h"
#include "engine/runtime/selection.h"

namespace tandem {

/// What one row attends on the host: tokens known now, and what operations before this one choose.
struct DecodeAttention::HostRow {
  struct Chosen {
    DigestIndex index;
    Scope scope;
    std::uint32_t blocks;              // that have a digest
    std::vector<std::uint32_t> slots;  // of their pages, from the index's first token
    Range heads;
    bool own_only;
  };
  struct InOwnMemory {
    Packed packed;
    Range heads;
    bool own_only;
  };
  std::uint32_t row = 0;
  SequenceId sequence = 0;
  OfHeads<PageRun> fixed;
  std::vector<Chosen> chosen;
  std::vector<InOwnMemory> packed;
  std::uint64_t most = 0;  // tokens, summed over KV heads
};

void DecodeAttention::gather_host(const LayerContext& context, const AttendItem& item, const Ranges& tokens, Op& op,
                                  HostRow& row) const {
  const Range heads{item.kv_heads.begin, std::min(item.kv_heads.end, context.shape.kv_heads)};
  const SequenceState& sequence = *context.batch[item.row];
  std::vector<PageRun> runs;
  append_page_runs(sequence, context.layer, tokens, runs);
  row.fixed.add(heads, context.shape.kv_heads, std::move(runs));
  for (const Range& r : tokens.positions) {
    const Range pages{r.begin / kPageTokens, blocks_for(r.end)};
    kv_.append_access(row.sequence, context.layer, pages, Tier::host, heads, false, op.access);
    kv_.append_filled(row.sequence, context.layer, pages, Tier::host, op.after);
  }
  row.most += std::uint64_t{heads.end - heads.begin} * tokens.count();
}

void DecodeAttention::gather_host(const LayerContext& context, const AttendItem& item, const Blocks& chosen, Op& op,
                                  HostRow& row) const {
  const ModelShape& shape = context.shape;
  const std::uint32_t layer = context.layer;
  const Range heads{item.kv_heads.begin, std::min(item.kv_heads.end, shape.kv_heads)};
  const DigestIndex& index = stores_.digests.get(chosen.digests.id);
  HostRow::Chosen c{index, chosen.scope, index.digests[layer], {}, heads, item.own_only};
  const Range pages{index.tokens.begin / kPageTokens, blocks_for(index.digested(layer).end)};
  kv_.append_slots(row.sequence, layer, pages, Tier::host, c.slots);
  kv_.append_access(row.sequence, layer, pages, Tier::host, heads, false, op.access);
  op.access.push_back(index.selection.reads());
  wait_for(op.after, chosen.ready);
  const std::uint32_t lists = chosen.scope == Scope::query_head ? shape.group() : 1;
  const std::uint32_t pieces = (heads.end - heads.begin) * std::min(c.blocks, lists * chosen.blocks);
  row.most += std::uint64_t{pieces} * index.block;
  op.cost.pieces += pieces;
  row.chosen.push_back(std::move(c));
}

void DecodeAttention::gather_host(const LayerContext&, const AttendItem&, const Tokens&, Op&, HostRow&) const {
  TANDEM_CHECK(false, "single tokens of the store are attended on the device");
}

void DecodeAttention::gather_host(const LayerContext& context, const AttendItem& item, const Packed& packed, Op& op,
                                  HostRow& row) const {
  const Range heads{item.kv_heads.begin, std::min(item.kv_heads.end, context.shape.kv_heads)};
  const std::uint32_t count = heads.end - heads.begin;
  op.access.insert(op.access.end(), packed.access.begin(), packed.access.end());
  wait_for(op.after, packed.ready);
  row.most += std::uint64_t{count} * packed.tokens;
  op.cost.pieces += 2 * count;  // K and V of a KV head lie in one run each
  row.packed.push_back({packed, heads, item.own_only});
}

DecodeAttention::HostRow DecodeAttention::gather_host_row(const LayerContext& context, std::uint32_t row,
                                                          std::span<const AttendItem* const> items, Op& op) const {
  const ModelShape& shape = context.shape;
  HostRow out;
  out.row = row;
  out.sequence = context.batch[row]->id;
  for (const AttendItem* item : items)
    std::visit([&](const auto& kv) { gather_host(context, *item, kv, op, out); }, item->kv);
  op.cost.dram += out.most * 2 * kv_.shape().vector_bytes();
  op.cost.context += out.most * 2 * kv_.shape().vector_bytes();
  op.cost.flops += out.most * 4 * shape.group() * shape.head_dim;
  op.cost.tasks += shape.kv_heads + static_cast<std::uint32_t>(out.most / kPartTokens);
  return out;
}

Event DecodeAttention::submit_host(const LayerContext& context, std::span<const std::vector<const AttendItem*>> items) {
  const ModelShape& shape = context.shape;
  const std::uint32_t layer = context.layer;
  Op op("host attention", Cause::host_attention, layer);
  op.cost.work = Work::attention;
  op.cost.upper_bound = true;
  op.cost.pieces = 0;
  op.after = {query_on_host(context)};
  std::vector<Access> own;
  std::uint64_t small = 0;  // bytes of q in and o out
  for (std::uint32_t row = 0; row < items.size(); ++row) {
    if (items[row].empty()) continue;
    own.insert(own.end(), {host_query_.reads(row, row + 1), host_part_.writes(row, row + 1),
                           host_lse_.writes(row, row + 1), counters_.writes(row, layer)});
    small += std::uint64_t{2} * shape.q_heads * shape.head_dim * sizeof(float);
  }
  op.access = own;
  op.cost.dram = small;
  std::vector<HostRow> rows;
  for (std::uint32_t row = 0; row < items.size(); ++row) {
    if (!items[row].empty()) rows.push_back(gather_host_row(context, row, items[row], op));
  }
  op.cost.pieces = std::max<std::uint32_t>(op.cost.pieces, 1);
  op.has_cost_only_part = true;
  op.body = [this, shape, layer, own = std::move(own), small, rows = std::move(rows)](BodyContext& ctx) {
    std::vector<Access> access;
    if (ctx.lists_access()) access = own;
    Cost cost;
    cost.work = Work::attention;
    cost.dram = small;
    cost.pieces = 0;
    cost.tasks = 0;
    std::vector<HeadSpans> work;
    resolve(ctx, shape, layer, rows, access, cost, ctx.computes() ? &work : nullptr);
    if (ctx.computes())
      attend_in_parts(pool_, shape, kv_.shape().type, work, cut_parts(work, kv_.shape().vector_bytes()),
                      ctx.read<float>(host_query_), ctx.write<float>(host_part_), ctx.write<float>(host_lse_));
    cost.pieces = std::max<std::uint32_t>(cost.pieces, 1);
    ctx.settle(cost, std::move(access));
  };
  return device_.submit(workers_, std::move(op));
}

/// By KV head, the tokens of a row's pages: those of sets of blocks and of runs, without going through the pages.
void DecodeAttention::count_pages(BodyContext& ctx, const ModelShape& shape, const HostRow& row,
                                  std::vector<std::uint64_t>& attended, Cost& cost) {
  for (std::uint32_t g = 0; g < shape.kv_heads; ++g) {
    if (g > 0 && row.fixed.by_head.empty()) {
      attended[g] = attended[0];
      continue;
    }
    attended[g] = 0;
    for (const PageRun& run : row.fixed.runs(g)) attended[g] += run.tokens;
  }
  for (const HostRow::Chosen& c : row.chosen) {
    const std::uint32_t* lists = c.index.selection.read<std::uint32_t>(ctx);
    BlockSet set(c.blocks);
    for (std::uint32_t g = c.heads.begin; g < c.heads.end; ++g) {
      set.clear();
      add_chosen(shape, c.scope, g, lists, c.index.room, set);
      attended[g] += c.index.tokens_of(set, c.blocks);
      cost.pieces += set.runs();
    }
  }
}

void DecodeAttention::resolve(BodyContext& ctx, const ModelShape& shape, std::uint32_t layer,
                              const std::vector<HostRow>& rows, std::vector<Access>& access, Cost& cost,
                              std::vector<HeadSpans>* out) const {
  auto* counters = ctx.write<HostAttended>(counters_.values);
  const std::size_t vector_bytes = kv_.shape().vector_bytes();
  const std::uint64_t per_token = 2 * vector_bytes;
  std::vector<std::vector<PageRun>> chosen(shape.kv_heads);
  std::vector<std::uint32_t> mask;                      // per block: which heads of the group chose it
  std::vector<std::uint64_t> attended(shape.kv_heads);  // tokens
  const bool sizes_alone = out == nullptr && !ctx.lists_access();
  for (const HostRow& row : rows) {
    HostAttended& counted = counters[counters_.at(row.row, layer)];
    if (sizes_alone) count_pages(ctx, shape, row, attended, cost);
    for (std::vector<PageRun>& runs : chosen) runs.clear();
    const std::size_t first_entry = out != nullptr ? out->size() : 0;
    for (const HostRow::Chosen& c : row.chosen) {
      if (sizes_alone) break;
      const std::uint32_t* lists = c.index.selection.read<std::uint32_t>(ctx);
      access.push_back(c.index.selection.reads());
      for (std::uint32_t g = c.heads.begin; g < c.heads.end; ++g) {
        mask.resize(c.blocks);
        chosen_masks(shape, c.scope, g, lists, c.index.room, mask);
        for (std::uint32_t b = 0; b < c.blocks; ++b) {
          if (mask[b] == 0) continue;
          if (b == 0 || mask[b - 1] == 0) ++cost.pieces;
          const Range tokens = c.index.block_tokens(b);
          for (std::uint32_t token = tokens.begin; token < tokens.end; token += kPageTokens) {
            const std::uint32_t slot = c.slots[(token - c.index.tokens.begin) / kPageTokens];
            chosen[g].push_back(
                {slot, 0, std::min(kPageTokens, tokens.end - token), c.own_only ? mask[b] : 0xFFFFFFFFu});
          }
        }
      }
    }
    for (std::uint32_t g = 0; !sizes_alone && g < shape.kv_heads; ++g) {
      const auto add = [&](const std::vector<PageRun>& runs) {
        const char* pages = runs.empty() ? nullptr : ctx.read<char>(kv_.host_buffer());
        for (std::size_t i = 0; i < runs.size();) {  // adjacent slots as one extent
          const std::uint32_t first = runs[i].slot;
          std::uint32_t last = first;
          for (; i < runs.size() && (runs[i].slot == last || runs[i].slot == last + 1); ++i) {
            last = runs[i].slot;
            attended[g] += runs[i].tokens;
            if (out == nullptr) continue;
            const std::size_t at = runs[i].first * vector_bytes;
            out->back().spans.push_back({pages + kv_.k_offset(last, g) + at, pages + kv_.v_offset(last, g) + at,
                                         runs[i].tokens, runs[i].head_mask});
          }
          if (!ctx.lists_access()) continue;
          access.push_back(kv_.slot_access(Tier::host, first, last - first + 1, Range{g, g + 1}, false));
        }
      };
      attended[g] = 0;
      if (out != nullptr) {
        out->push_back({row.row, g, {}});
        out->back().spans.reserve(row.fixed.runs(g).size() + chosen[g].size());
      }
      add(row.fixed.runs(g));
      add(chosen[g]);
    }
    for (const HostRow::InOwnMemory& p : row.packed) {
      if (ctx.lists_access()) access.insert(access.end(), p.packed.access.begin(), p.packed.access.end());
      const std::size_t mask_bytes = p.packed.masks ? sizeof(std::uint32_t) : 0;
      for (std::uint32_t g = p.heads.begin; g < p.heads.end; ++g) {
        const std::uint32_t count = packed_tokens(ctx, p.packed, g);
        attended[g] += count;
        cost.pieces += count > 0 ? 2 : 0;
        cost.dram += count * mask_bytes;
        cost.context += count * mask_bytes;
        cost.contiguous += packed_contiguous(count, vector_bytes);
        counted.packed_bytes += count * (2 * vector_bytes + mask_bytes);
        if (out == nullptr) continue;
        append_packed_spans(ctx, p.packed, vector_bytes, g, p.own_only, (*out)[first_entry + g].spans);
      }
    }
    for (const std::uint64_t tokens : attended) {
      counted.tokens += tokens;
      cost.dram += tokens * per_token;
      cost.context += tokens * per_token;
      cost.flops += tokens * 4 * shape.group() * shape.head_dim;
      cost.tasks += parts_of(tokens);
    }
  }
}

}  // namespace tandem
