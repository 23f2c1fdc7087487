#include "engine/runtime/decode_attention.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "engine/common/error.h"
#include "engine/kernels/attention.h"
#include "engine/kernels/digest.h"
#include "engine/kernels/merge.h"
#include "engine/kernels/topk.h"

namespace tandem {
namespace {

// Work of one thread at a time. Fixed sizes and a fixed order of merging: results do not depend on the threads.
constexpr std::uint32_t kPartTokens = 512;
constexpr std::uint32_t kSelectionBlocks = 256;

std::uint32_t selection_parts(std::uint32_t blocks) {
  return (blocks + kSelectionBlocks - 1) / kSelectionBlocks;
}

}  // namespace

std::uint32_t StaticTokens::count() const {
  return std::accumulate(ranges.begin(), ranges.end(), 0u,
                         [](std::uint32_t sum, const Range& r) { return sum + (r.end - r.begin); });
}

DecodeAttention::DecodeAttention(Forward& forward, Device& device, ThreadPool& pool, KvStore& kv, DigestStore& digests)
    : forward_(forward),
      device_(device),
      pool_(pool),
      kv_(kv),
      digests_(digests),
      compute_(device.lane(LaneKind::device_compute)),
      h2d_(device.lane(LaneKind::h2d)),
      d2h_(device.lane(LaneKind::d2h)),
      workers_(device.lane(LaneKind::host_workers)) {
  const ModelShape& s = forward.shape();
  const std::size_t heads = std::size_t{forward.max_batch()} * s.q_heads;
  const std::size_t values = heads * s.head_dim * sizeof(float), sums = heads * sizeof(float);
  device_part_ = device.allocate_device(values, "device partial");
  device_lse_ = device.allocate_device(sums, "device lse");
  landed_part_ = device.allocate_device(values, "host partial on the device");
  landed_lse_ = device.allocate_device(sums, "host lse on the device");
  host_query_ = device.allocate_host(values, "query on the host");
  host_part_ = device.allocate_host(values, "host partial");
  host_lse_ = device.allocate_host(sums, "host lse");
  host_attended_ = device.allocate_host(forward.max_batch() * sizeof(std::uint64_t), "host attended");
  attended_.resize(forward.max_batch());
}

void DecodeAttention::begin_layer(Event query_ready) {
  query_ready_ = query_ready;
  query_on_host_ = Event{};
}

Event DecodeAttention::query_on_host(const LayerContext& context) {
  if (query_on_host_.valid()) return query_on_host_;
  const auto rows = static_cast<std::uint32_t>(context.batch.size());
  const std::size_t bytes = std::size_t{rows} * context.shape.q_heads * context.shape.head_dim * sizeof(float);
  Op op;
  op.name = "query to host";
  op.kind = Kind::copy;
  op.cause = Cause::transfer;
  op.layer = context.layer;
  op.cost.d2h = bytes;
  op.access = {forward_.q().reads(0, rows), host_query_.writes(0, rows)};
  op.after = {query_ready_};
  op.body = [this, bytes](BodyContext& ctx) {
    std::memcpy(ctx.write<float>(host_query_), ctx.read<float>(forward_.q()), bytes);
  };
  query_on_host_ = device_.submit(d2h_, std::move(op));
  return query_on_host_;
}

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

void DecodeAttention::check_plan(const LayerContext& context, const AttendPlan& plan) const {
  std::vector<bool> covered(context.batch.size());
  for (const AttendItem& item : plan.items) {
    TANDEM_CHECK(item.row < context.batch.size(), "a plan names row {} of a batch of {}", item.row,
                 context.batch.size());
    covered[item.row] = true;
    if (const auto* fixed = std::get_if<StaticTokens>(&item.pages.source)) {
      std::uint32_t at = 0;
      for (const Range& r : fixed->ranges) {
        TANDEM_CHECK(r.begin >= at && r.begin < r.end && r.end <= context.batch[item.row]->tokens,
                     "a plan names tokens [{}, {}) of {} (ranges must be sorted, disjoint, not empty)", r.begin, r.end,
                     context.batch[item.row]->tokens);
        at = r.end;
      }
    } else {
      TANDEM_CHECK(item.side == Side::host, "a selection made on the host is attended there");
    }
  }
  TANDEM_CHECK(std::all_of(covered.begin(), covered.end(), [](bool c) { return c; }),
               "a plan leaves a row without attention");
}

void DecodeAttention::append_static_runs(const SequenceState& sequence, std::uint32_t layer, const StaticTokens& tokens,
                                         Tier tier, std::vector<PageRun>& runs) const {
  for (const Range& range : tokens.ranges) {
    for (std::uint32_t token = range.begin; token < range.end;) {
      const std::uint32_t block = token / kPageTokens, first = token % kPageTokens;
      const std::uint32_t count = std::min(kPageTokens - first, range.end - token);
      const std::uint32_t slot = kv_.slot(sequence.id, layer, block, tier);
      TANDEM_CHECK(slot != KvStore::kNoSlot, "a plan attends block {} of layer {}, which is not on that side", block,
                   layer);
      runs.push_back({slot, first, count, 0xFFFFFFFFu});
      token += count;
    }
  }
}

void DecodeAttention::submit_device(const LayerContext& context, std::span<const AttendItem* const> items,
                                    const DeviceBuffer& out, const DeviceBuffer& lse) {
  const ModelShape& shape = context.shape;
  const auto rows = static_cast<std::uint32_t>(context.batch.size());
  std::vector<HeadWork> work;  // every (row, KV head), so that rows without device items give the empty partial
  for (std::uint32_t row = 0; row < rows; ++row) {
    for (std::uint32_t head = 0; head < shape.kv_heads; ++head) work.push_back({row, head, {}});
  }
  Op op;
  op.name = "device attention";
  op.layer = context.layer;
  op.cost.work = Work::attention;
  op.access = {forward_.q().reads(0, rows), out.writes(0, rows)};
  if (lse) op.access.push_back(lse.writes(0, rows));
  for (const AttendItem* item : items) {
    const SequenceState& sequence = *context.batch[item->row];
    const auto& tokens = std::get<StaticTokens>(item->pages.source);
    const Range heads{item->kv_heads.begin, std::min(item->kv_heads.end, shape.kv_heads)};
    for (const Range& r : tokens.ranges) {
      kv_.append_access(sequence.id, context.layer, {r.begin / kPageTokens, blocks_for(r.end)}, Tier::device, heads,
                        false, op.access);
    }
    const std::uint64_t count = std::uint64_t{tokens.count()} * (heads.end - heads.begin);
    attended_[item->row].tokens[static_cast<int>(Side::device)] += count;
    op.cost.hbm += count * 2 * shape.head_dim * sizeof(float);
    op.cost.flops += count * 4 * shape.group() * shape.head_dim;
    for (std::uint32_t head = heads.begin; head < heads.end; ++head) {
      append_static_runs(sequence, context.layer, tokens, Tier::device, work[item->row * shape.kv_heads + head].runs);
    }
  }
  op.cost.hbm += std::uint64_t{2} * rows * shape.q_heads * shape.head_dim * sizeof(float);
  op.body = [this, shape, work = std::move(work), out, lse](BodyContext& ctx) {
    const float* pages = ctx.read<float>(kv_.device_buffer());
    const float* query = ctx.read<float>(forward_.q());
    float* o = ctx.write<float>(out);
    std::vector<float> discarded(lse ? 0 : work.size() * shape.group());
    float* sums = lse ? ctx.write<float>(lse) : discarded.data();
    pool_.parallel_for(work.size(), [&](std::size_t i) {
      std::vector<KvSpan> spans;
      spans.reserve(work[i].runs.size());
      for (const PageRun& run : work[i].runs) {
        const std::size_t at = std::size_t{run.first} * shape.head_dim;
        spans.push_back({pages + kv_.k_offset(run.slot, work[i].kv_head) + at,
                         pages + kv_.v_offset(run.slot, work[i].kv_head) + at, run.tokens, run.head_mask});
      }
      const std::size_t head = std::size_t{work[i].row} * shape.q_heads + work[i].kv_head * shape.group();
      partial_attention(query + head * shape.head_dim, spans, shape.group(), shape.head_dim, o + head * shape.head_dim,
                        sums + head);
    });
  };
  device_.submit(compute_, std::move(op));
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

void DecodeAttention::submit_merge(const LayerContext& context, std::span<const std::uint32_t> host_rows,
                                   std::vector<Event> host_done) {
  const ModelShape& shape = context.shape;
  const auto rows = static_cast<std::uint32_t>(context.batch.size());
  const std::size_t width = std::size_t{shape.q_heads} * shape.head_dim;
  Op copy;
  copy.name = "host partials to device";
  copy.kind = Kind::copy;
  copy.cause = Cause::transfer;
  copy.layer = context.layer;
  copy.cost.h2d = host_rows.size() * (width + shape.q_heads) * sizeof(float);
  copy.cost.pieces = static_cast<std::uint32_t>(2 * host_rows.size());
  for (const std::uint32_t row : host_rows) {
    for (const Access& a : {host_part_.reads(row, row + 1), host_lse_.reads(row, row + 1),
                            landed_part_.writes(row, row + 1), landed_lse_.writes(row, row + 1)}) {
      copy.access.push_back(a);
    }
  }
  copy.after = std::move(host_done);
  std::vector<bool> on_host(rows);
  for (const std::uint32_t row : host_rows) on_host[row] = true;
  copy.body = [this, shape, width,
               list = std::vector<std::uint32_t>(host_rows.begin(), host_rows.end())](BodyContext& ctx) {
    for (const std::uint32_t row : list) {
      std::copy_n(ctx.read<float>(host_part_) + row * width, width, ctx.write<float>(landed_part_) + row * width);
      std::copy_n(ctx.read<float>(host_lse_) + std::size_t{row} * shape.q_heads, shape.q_heads,
                  ctx.write<float>(landed_lse_) + std::size_t{row} * shape.q_heads);
    }
  };
  const Event landed = device_.submit(h2d_, std::move(copy));

  Op merge;
  merge.name = "merge";
  merge.layer = context.layer;
  merge.cost.hbm = std::uint64_t{3} * rows * width * sizeof(float);
  merge.cost.flops = std::uint64_t{3} * rows * width;
  merge.access = {device_part_.reads(0, rows), device_lse_.reads(0, rows), forward_.attention().writes(0, rows)};
  for (const std::uint32_t row : host_rows) {
    merge.access.push_back(landed_part_.reads(row, row + 1));
    merge.access.push_back(landed_lse_.reads(row, row + 1));
  }
  merge.after = {landed};
  merge.body = [this, shape, rows, width, on_host](BodyContext& ctx) {
    for (std::uint32_t row = 0; row < rows; ++row) {
      const float* parts[2] = {ctx.read<float>(device_part_) + row * width,
                               ctx.read<float>(landed_part_) + row * width};
      const float* sums[2] = {ctx.read<float>(device_lse_) + std::size_t{row} * shape.q_heads,
                              ctx.read<float>(landed_lse_) + std::size_t{row} * shape.q_heads};
      merge_partials(parts, sums, on_host[row] ? 2 : 1, shape.q_heads, shape.head_dim,
                     ctx.write<float>(forward_.attention()) + row * width, nullptr);
    }
  };
  device_.submit(compute_, std::move(merge));
}

void DecodeAttention::run(const LayerContext& context, const AttendPlan& plan) {
  check_plan(context, plan);
  std::vector<const AttendItem*> on_device;
  std::vector<std::vector<const AttendItem*>> on_host(context.batch.size());
  for (const AttendItem& item : plan.items) {
    if (item.side == Side::device) {
      on_device.push_back(&item);
    } else {
      on_host[item.row].push_back(&item);
    }
  }
  std::vector<std::uint32_t> host_rows;
  std::vector<Event> host_done;
  for (std::uint32_t row = 0; row < on_host.size(); ++row) {
    if (on_host[row].empty()) continue;
    host_rows.push_back(row);
    host_done.push_back(submit_host(context, row, on_host[row]));
  }
  if (host_rows.empty()) {  // the common case of methods without a host part: straight into the layer's attention
    submit_device(context, on_device, forward_.attention(), DeviceBuffer{});
    return;
  }
  submit_device(context, on_device, device_part_, device_lse_);
  device_.end_segment();  // a captured segment must not contain a wait for the host
  device_.begin_segment("after host partials");
  submit_merge(context, host_rows, std::move(host_done));
}

std::vector<DecodeAttention::Attended> DecodeAttention::take_attended(std::uint32_t rows) {
  std::vector<Attended> out(attended_.begin(), attended_.begin() + rows);
  const auto host = device_.host_write<std::uint64_t>(host_attended_, {0, rows});
  for (std::uint32_t row = 0; row < rows; ++row) {
    out[row].tokens[static_cast<int>(Side::host)] = host[row];
    host[row] = 0;
    attended_[row] = {};
  }
  return out;
}

}  // namespace tandem
