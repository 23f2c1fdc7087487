// The host's part of DecodeAttention: partial attention over pages and packed tokens in host memory.
#include <algorithm>
#include <utility>

#include "engine/common/error.h"
#include "engine/runtime/decode_attention.h"
#include "engine/runtime/layer_costs.h"
#include "engine/runtime/packed_spans.h"
#include "engine/runtime/selection.h"

namespace tandem {

/// What one row attends on the host: tokens known now, and what operations before this one choose.
struct DecodeAttention::HostRow {
  struct Chosen {
    ChosenBlocks blocks;
    bool own_only;
  };
  struct InOwnMemory {
    Packed packed;
    bool own_only;
  };
  std::uint32_t row = 0;
  SequenceId sequence = 0;
  std::vector<PageRun> fixed;
  std::vector<Chosen> chosen;
  std::vector<InOwnMemory> packed;
  std::uint64_t most = 0;  // tokens, summed over KV heads
};

DecodeAttention::HostRow DecodeAttention::gather_host(const LayerContext& context, std::uint32_t row,
                                                      std::span<const AttendItem* const> items, Op& op) const {
  const ModelShape& shape = context.shape;
  const Range heads{0, shape.kv_heads};
  HostRow out;
  out.row = row;
  out.sequence = context.batch[row]->id;
  for (const AttendItem* item : items) {
    if (const auto* tokens = std::get_if<Ranges>(&item->kv)) {
      append_page_runs(*context.batch[row], context.layer, *tokens, out.fixed);
      for (const Range& r : tokens->positions) {
        const Range blocks{r.begin / kPageTokens, blocks_for(r.end)};
        kv_.append_access(out.sequence, context.layer, blocks, Tier::host, heads, false, op.access);
        kv_.append_filled(out.sequence, context.layer, blocks, Tier::host, op.after);
      }
      out.most += std::uint64_t{heads.end} * tokens->count();
    } else if (const auto* chosen = std::get_if<Blocks>(&item->kv)) {
      HostRow::Chosen c{{stores_.digests.get(chosen->digests.id), *chosen, shape}, item->own_only};
      c.blocks.slots = kv_.declare_reads(op, out.sequence, context.layer, c.blocks.page_range(), Tier::host);
      op.access.push_back(c.blocks.index.selection.reads());
      wait_for(op.after, chosen->ready);
      const std::uint32_t pieces = shape.kv_heads * c.blocks.most;
      out.most += std::uint64_t{pieces} * c.blocks.index.block;
      op.cost.pieces += pieces;
      out.chosen.push_back(std::move(c));
    } else if (const auto* packed = std::get_if<Packed>(&item->kv)) {
      op.access.insert(op.access.end(), packed->access.begin(), packed->access.end());
      wait_for(op.after, packed->ready);
      out.most += std::uint64_t{heads.end} * packed->tokens;
      op.cost.pieces += 2 * heads.end;  // K and V of a KV head lie in one run each
      out.packed.push_back({*packed, item->own_only});
    } else {
      TANDEM_CHECK(false, "single tokens of the store are attended on the device");
    }
  }
  add_host_attention(op.cost, out.most, kv_.shape().vector_bytes(), shape.group(), shape.head_dim);
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
    own.insert(own.end(), {host_.query.reads(row, row + 1), host_.part.writes(row, row + 1),
                           host_.lse.writes(row, row + 1), counters_.writes(row, layer)});
    small += std::uint64_t{2} * shape.q_heads * shape.head_dim * sizeof(float);
  }
  op.access = own;
  op.cost.dram = small;
  std::vector<HostRow> rows;
  for (std::uint32_t row = 0; row < items.size(); ++row) {
    if (!items[row].empty()) rows.push_back(gather_host(context, row, items[row], op));
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
                      ctx.read<float>(host_.query), ctx.write<float>(host_.part), ctx.write<float>(host_.lse));
    cost.pieces = std::max<std::uint32_t>(cost.pieces, 1);
    ctx.settle(cost, std::move(access));
  };
  return device_.submit(workers_, std::move(op));
}

void DecodeAttention::resolve(BodyContext& ctx, const ModelShape& shape, std::uint32_t layer,
                              const std::vector<HostRow>& rows, std::vector<Access>& access, Cost& cost,
                              std::vector<HeadSpans>* out) const {
  auto* counters = ctx.write<HostAttended>(counters_.values);
  const std::size_t vector_bytes = kv_.shape().vector_bytes();
  std::vector<std::vector<PageRun>> chosen(shape.kv_heads);
  std::vector<std::uint64_t> attended(shape.kv_heads);  // tokens
  const bool sizes_alone = out == nullptr && !ctx.lists_access();
  for (const HostRow& row : rows) {
    HostAttended& counted = counters[counters_.at(row.row, layer)];
    std::uint64_t fixed = 0;  // tokens of a KV head, without going through it again
    for (std::size_t i = 0; sizes_alone && i < row.fixed.size(); ++i) fixed += row.fixed[i].tokens;
    std::fill(attended.begin(), attended.end(), fixed);
    for (std::vector<PageRun>& runs : chosen) runs.clear();
    const std::size_t first_entry = out != nullptr ? out->size() : 0;
    for (const HostRow::Chosen& c : row.chosen) {
      if (!sizes_alone) access.push_back(c.blocks.index.selection.reads());
      const std::uint32_t* const lists = c.blocks.lists(ctx);
      for (std::uint32_t g = 0; g < shape.kv_heads; ++g) {
        const BlockSet set = c.blocks.set(lists, shape, g);
        cost.pieces += set.runs();
        if (sizes_alone) {
          attended[g] += c.blocks.index.tokens_of(set, c.blocks.blocks);
          continue;
        }
        c.blocks.for_pages(lists, shape, g,
                           [&](std::uint32_t mask, std::uint32_t page, std::uint32_t, std::uint32_t tokens) {
                             chosen[g].push_back({c.blocks.slots[page], 0, tokens, c.own_only ? mask : 0xFFFFFFFFu});
                           });
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
      if (out != nullptr) {
        out->push_back({row.row, g, {}});
        out->back().spans.reserve(row.fixed.size() + chosen[g].size());
      }
      add(row.fixed);
      add(chosen[g]);
    }
    for (const HostRow::InOwnMemory& p : row.packed) {
      if (ctx.lists_access()) access.insert(access.end(), p.packed.access.begin(), p.packed.access.end());
      const std::size_t mask_bytes = p.packed.masks ? sizeof(std::uint32_t) : 0;
      for (std::uint32_t g = 0; g < shape.kv_heads; ++g) {
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
      add_host_attention(cost, tokens, vector_bytes, shape.group(), shape.head_dim);
      cost.tasks += parts_of(tokens);
    }
  }
}

}  // namespace tandem
