// The host's part of DecodeAttention: choosing blocks by their digests, and partial attention over pages in host
// memory.
#include <algorithm>

#include "engine/common/error.h"
#include "engine/kernels/attention.h"
#include "engine/kernels/digest.h"
#include "engine/kernels/merge.h"
#include "engine/kernels/topk.h"
#include "engine/runtime/decode_attention.h"

namespace tandem {
namespace {

// Work of one thread at a time. Fixed sizes and a fixed order of merging: results do not depend on the threads.
constexpr std::uint32_t kPartTokens = 512;
constexpr std::uint32_t kSelectionBlocks = 256;

std::uint32_t selection_parts(std::uint32_t blocks) {
  return (blocks + kSelectionBlocks - 1) / kSelectionBlocks;
}

}  // namespace

SelectionRef DecodeAttention::score_topk(const LayerContext& context, const ScoreRequest& request) {
  const DigestIndex& index = digests_.get(request.digests.id);
  const ModelShape& shape = context.shape;
  const std::uint32_t row = request.sequence->row, layer = context.layer;
  const std::uint32_t keep = std::min(request.blocks_per_head, index.blocks);
  Op op;
  op.name = "select blocks";
  op.cause = Cause::selection;
  op.layer = layer;
  op.cost.work = Work::select;
  op.cost.dram = index.layer_bytes();
  op.cost.tasks = shape.kv_heads * selection_parts(index.blocks);
  op.cost.flops = std::uint64_t{4} * shape.q_heads * index.blocks * shape.head_dim;
  op.access = {host_query_.reads(row, row + 1), index.values.reads(layer, layer + 1), index.selection.writes()};
  op.after = {query_on_host(context)};
  op.body = [this, &index, shape, row, layer, keep](BodyContext& ctx) {
    const float* query = ctx.read<float>(host_query_) + std::size_t{row} * shape.q_heads * shape.head_dim;
    const float* values = ctx.read<float>(index.values);
    auto* selection = ctx.write<std::uint32_t>(index.selection);
    const std::uint32_t group = shape.group(), parts = selection_parts(index.blocks);
    std::vector<float> scores(std::size_t{shape.q_heads} * index.blocks);  // [Hq][blocks]
    pool_.parallel_for(std::size_t{shape.kv_heads} * parts, [&](std::size_t task) {
      const auto kv_head = static_cast<std::uint32_t>(task / parts);
      const std::uint32_t first = static_cast<std::uint32_t>(task % parts) * kSelectionBlocks;
      const std::uint32_t count = std::min(kSelectionBlocks, index.blocks - first);
      const std::size_t at = std::size_t{first} * shape.head_dim;
      std::vector<float> part(std::size_t{group} * count);
      score_blocks(query + std::size_t{kv_head} * group * shape.head_dim,
                   values + index.min_offset(layer, kv_head) + at, values + index.max_offset(layer, kv_head) + at,
                   count, group, shape.head_dim, part.data());
      for (std::uint32_t h = 0; h < group; ++h) {
        std::copy_n(part.data() + std::size_t{h} * count, count,
                    scores.data() + (std::size_t{kv_head} * group + h) * index.blocks + first);
      }
    });
    pool_.parallel_for(shape.q_heads, [&](std::size_t h) {
      std::uint32_t* chosen = selection + h * (1 + std::size_t{index.blocks});
      chosen[0] = keep;
      top_k(scores.data() + h * index.blocks, index.blocks, keep, chosen + 1);
    });
  };
  SelectionRef selection;
  selection.digests = request.digests;
  selection.blocks_per_head = keep;
  selection.ready = device_.submit(workers_, std::move(op));
  return selection;
}

Event DecodeAttention::submit_host(const LayerContext& context, std::uint32_t row,
                                   std::span<const AttendItem* const> items) {
  const ModelShape& shape = context.shape;
  const SequenceState& sequence = *context.batch[row];
  const std::uint32_t layer = context.layer;
  struct Chosen {
    const DigestIndex* index;
    std::vector<std::uint32_t> slots;  // of the index's pages, from its first token
    Range heads;
    bool own_blocks_only;
  };
  std::vector<HeadWork> fixed(shape.kv_heads);  // static tokens on the host, per KV head
  std::vector<Chosen> chosen;
  Op op;
  op.name = "host attention";
  op.cause = Cause::host_attention;
  op.layer = layer;
  op.cost.work = Work::attention;
  op.cost.upper_bound = true;
  op.cost.pieces = 0;
  op.access = {host_query_.reads(row, row + 1), host_part_.writes(row, row + 1), host_lse_.writes(row, row + 1),
               host_attended_.writes(row, row + 1)};
  op.after = {query_on_host(context)};
  std::uint64_t most = 0;  // tokens, summed over KV heads
  for (const AttendItem* item : items) {
    const Range heads{item->kv_heads.begin, std::min(item->kv_heads.end, shape.kv_heads)};
    const std::uint32_t count = heads.end - heads.begin;
    if (const auto* tokens = std::get_if<StaticTokens>(&item->pages.source)) {
      for (std::uint32_t head = heads.begin; head < heads.end; ++head) {
        append_static_runs(sequence, layer, *tokens, Tier::host, fixed[head].runs);
      }
      for (const Range& r : tokens->ranges) {
        kv_.append_access(sequence.id, layer, {r.begin / kPageTokens, blocks_for(r.end)}, Tier::host, heads, false,
                          op.access);
        kv_.append_filled(sequence.id, layer, {r.begin / kPageTokens, blocks_for(r.end)}, Tier::host, op.after);
      }
      most += std::uint64_t{count} * tokens->count();
      continue;
    }
    const auto& selection = std::get<SelectionRef>(item->pages.source);
    const DigestIndex& index = digests_.get(selection.digests.id);
    Chosen c{&index, {}, heads, item->own_blocks_only};
    const Range blocks{index.tokens.begin / kPageTokens, blocks_for(index.tokens.end)};
    for (std::uint32_t block = blocks.begin; block < blocks.end; ++block) {
      c.slots.push_back(kv_.slot(sequence.id, layer, block, Tier::host));
      TANDEM_CHECK(c.slots.back() != KvStore::kNoSlot, "block {} of layer {} is not on the host", block, layer);
    }
    kv_.append_access(sequence.id, layer, blocks, Tier::host, heads, false, op.access);
    op.access.push_back(index.selection.reads());
    op.after.push_back(selection.ready);
    most += std::uint64_t{count} * std::min(index.blocks, shape.group() * selection.blocks_per_head) * index.block;
    op.cost.pieces += count * std::min(index.blocks, shape.group() * selection.blocks_per_head);
    chosen.push_back(std::move(c));
  }
  const std::uint64_t small = std::uint64_t{2} * shape.q_heads * shape.head_dim * sizeof(float);  // q in, o out
  const std::uint64_t per_token = std::uint64_t{2} * shape.head_dim * sizeof(float);
  op.cost.dram = most * per_token + small;
  op.cost.flops = most * 4 * shape.group() * shape.head_dim;
  op.cost.pieces = std::max<std::uint32_t>(op.cost.pieces, 1);
  op.cost.tasks = shape.kv_heads + static_cast<std::uint32_t>(most / kPartTokens);
  const std::vector<Access> own(op.access.begin(), op.access.begin() + 4);
  op.body = [this, shape, row, layer, own, small, per_token, fixed = std::move(fixed),
             chosen = std::move(chosen)](BodyContext& ctx) mutable {
    const float* pages = ctx.read<float>(kv_.host_buffer());
    std::vector<HeadWork> work = fixed;
    std::vector<Access> access = own;
    std::uint64_t attended = 0;
    std::uint32_t pieces = 0;
    for (const Chosen& c : chosen) {
      const auto* selection = ctx.read<std::uint32_t>(c.index->selection);
      access.push_back(c.index->selection.reads());
      std::vector<std::uint32_t> mask(c.index->blocks);  // per block: which heads of the group chose it
      for (std::uint32_t g = c.heads.begin; g < c.heads.end; ++g) {
        std::fill(mask.begin(), mask.end(), 0u);
        for (std::uint32_t h = 0; h < shape.group(); ++h) {
          const std::uint32_t* list =
              selection + (std::size_t{g} * shape.group() + h) * (1 + std::size_t{c.index->blocks});
          for (std::uint32_t i = 1; i <= list[0]; ++i) mask[list[i]] |= 1u << h;
        }
        bool adjacent = false;
        for (std::uint32_t b = 0; b < c.index->blocks; ++b) {
          if (mask[b] == 0) {
            adjacent = false;
            continue;
          }
          if (!adjacent) ++pieces;
          adjacent = true;
          const Range tokens = c.index->block_tokens(b);
          for (std::uint32_t token = tokens.begin; token < tokens.end; token += kPageTokens) {
            const std::uint32_t slot = c.slots[(token - c.index->tokens.begin) / kPageTokens];
            work[g].runs.push_back(
                {slot, 0, std::min(kPageTokens, tokens.end - token), c.own_blocks_only ? mask[b] : 0xFFFFFFFFu});
          }
        }
      }
    }
    for (std::uint32_t g = 0; g < shape.kv_heads; ++g) {
      for (std::size_t i = 0; i < work[g].runs.size();) {  // adjacent slots as one extent
        const std::uint32_t first = work[g].runs[i].slot;
        std::uint32_t last = first;
        for (; i < work[g].runs.size() && (work[g].runs[i].slot == last || work[g].runs[i].slot == last + 1); ++i) {
          last = work[g].runs[i].slot;
          attended += work[g].runs[i].tokens;
        }
        access.push_back(kv_.slot_access(Tier::host, first, last - first + 1, Range{g, g + 1}, false));
      }
    }
    const std::size_t at = std::size_t{row} * shape.q_heads;
    const float* query = ctx.read<float>(host_query_) + at * shape.head_dim;
    float* o = ctx.write<float>(host_part_) + at * shape.head_dim;
    float* lse = ctx.write<float>(host_lse_) + at;
    const auto tasks = attend_in_parts(shape, work, pages, query, o, lse);
    ctx.write<std::uint64_t>(host_attended_)[row] += attended;
    Cost cost;
    cost.work = Work::attention;
    cost.dram = attended * per_token + small;
    cost.flops = attended * 4 * shape.group() * shape.head_dim;
    cost.pieces = std::max<std::uint32_t>(pieces, 1);
    cost.tasks = tasks;
    ctx.settle(cost, std::move(access));
  };
  return device_.submit(workers_, std::move(op));
}

std::uint32_t DecodeAttention::attend_in_parts(const ModelShape& shape, const std::vector<HeadWork>& work,
                                               const float* pages, const float* query, float* o, float* lse) {
  struct Part {
    std::uint32_t kv_head;
    std::size_t first, last;  // runs
  };
  std::vector<Part> parts;
  std::vector<std::size_t> first_part(shape.kv_heads + 1);
  for (std::uint32_t head = 0; head < shape.kv_heads; ++head) {
    first_part[head] = parts.size();
    std::uint32_t tokens = kPartTokens;  // so that the first run opens a part
    for (std::size_t run = 0; run < work[head].runs.size(); ++run) {
      if (tokens >= kPartTokens) {
        parts.push_back({head, run, run});
        tokens = 0;
      }
      tokens += work[head].runs[run].tokens;
      parts.back().last = run + 1;
    }
    if (parts.size() == first_part[head]) parts.push_back({head, 0, 0});  // nothing attended: the empty partial
  }
  first_part[shape.kv_heads] = parts.size();
  const std::uint32_t group = shape.group();
  const std::size_t width = std::size_t{group} * shape.head_dim;
  std::vector<float> part_o(parts.size() * width), part_lse(parts.size() * group);
  pool_.parallel_for(parts.size(), [&](std::size_t i) {
    const Part& part = parts[i];
    std::vector<KvSpan> spans;
    spans.reserve(part.last - part.first);
    for (std::size_t r = part.first; r < part.last; ++r) {
      const PageRun& run = work[part.kv_head].runs[r];
      const std::size_t at = std::size_t{run.first} * shape.head_dim;
      spans.push_back({pages + kv_.k_offset(run.slot, part.kv_head) + at,
                       pages + kv_.v_offset(run.slot, part.kv_head) + at, run.tokens, run.head_mask});
    }
    partial_attention(query + part.kv_head * width, spans, group, shape.head_dim, part_o.data() + i * width,
                      part_lse.data() + i * group);
  });
  for (std::uint32_t head = 0; head < shape.kv_heads; ++head) {
    std::vector<const float*> os, lses;
    for (std::size_t i = first_part[head]; i < first_part[head + 1]; ++i) {
      os.push_back(part_o.data() + i * width);
      lses.push_back(part_lse.data() + i * group);
    }
    merge_partials(os.data(), lses.data(), static_cast<std::uint32_t>(os.size()), group, shape.head_dim,
                   o + head * width, lse + std::size_t{head} * group);
  }
  return static_cast<std::uint32_t>(parts.size());
}

}  // namespace tandem
