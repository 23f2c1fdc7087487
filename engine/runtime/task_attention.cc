#include "engine/runtime/task_attention.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/common/error.h"
#include "engine/kernels/digest.h"
#include "engine/kernels/merge.h"
#include "engine/kernels/topk.h"

namespace tandem {
namespace {

constexpr std::uint32_t kScoredBlocks = 256;  // of one thread at a time

/// Of one KV head.
Access of_head(Access access, std::uint32_t kv_head) {
  access.extent.heads = {kv_head, kv_head + 1};
  return access;
}

}  // namespace

/// Pages of a row's layer in host memory, shared by its tasks.
struct TaskAttention::RowPages {
  std::uint32_t id = 0;  // of the digest index that they belong to
  std::uint32_t row = 0;
  DigestIndex index;                 // by value: one that grows gets other memory
  std::vector<std::uint32_t> slots;  // from the index's first token
  std::vector<Access> access;        // reads, of all heads
  std::vector<Event> filled;
};

struct TaskAttention::Pulled {
  PullTask task;
  std::shared_ptr<const RowPages> pages;
  ScorePlace place;
  std::uint32_t blocks = 0;  // that have a digest
  std::uint32_t most = 0;    // blocks that are read
  std::uint32_t layer = 0;

  std::uint64_t digest_bytes() const { return std::uint64_t{2} * blocks * pages->index.shape.vector_bytes(); }
};

TaskAttention::TaskAttention(Forward& forward, Device& device, ThreadPool& pool, KvStore& kv, SequenceStores& stores,
                             const ScoreProcess* process)
    : forward_(forward), device_(device), pool_(pool), kv_(kv), stores_(stores), process_(process) {}

const DeviceBuffer& TaskAttention::first_part() {
  make_room(1);
  return first_part_;
}

void TaskAttention::make_room(std::uint32_t width) {
  const ModelShape& s = forward_.shape();
  const std::size_t heads = std::size_t{forward_.max_batch()} * s.q_heads;
  if (!first_part_) {
    first_part_ = device_.allocate_device(heads * s.head_dim * sizeof(float), "first partial");
    first_lse_ = device_.allocate_device(heads * sizeof(float), "first lse");
    by_host_ = device_.allocate_host(std::size_t{forward_.max_batch()} * s.kv_heads, "tasks of the host");
    taken_ = device_.allocate_host(2 * std::size_t{forward_.max_batch()} * sizeof(std::uint64_t), "tasks taken");
  }
  if (estimates_.bytes() >= heads * width * sizeof(float)) return;
  estimates_ = device_.allocate_device(heads * width * sizeof(float), "head estimates");
  host_estimates_ = device_.allocate_host(heads * width * sizeof(float), "head estimates on the host");
}

/// Estimates on the device, copied to the host.
Event TaskAttention::estimate(const LayerContext& context, const HeadEstimate& heads, const Room& room) {
  make_room(heads.width);
  const ModelShape& shape = context.shape;
  const auto rows = static_cast<std::uint32_t>(context.batch.size());
  const std::size_t floats = std::size_t{shape.q_heads} * heads.width,
                    width = std::size_t{shape.q_heads} * shape.head_dim;
  std::vector<HeadView> views;
  views.reserve(rows);
  for (const SequenceState* sequence : context.batch)
    views.push_back(
        {.sequence = sequence->id, .row = sequence->row, .layer = context.layer, .tokens = sequence->tokens});
  Op op;
  op.name = "estimate heads";
  op.cause = Cause::selection;
  op.layer = context.layer;
  op.cost = heads.cost;
  op.cost.hbm += rows * (3 * width + 2 * shape.q_heads + floats) * sizeof(float);
  op.access = {forward_.q().reads(0, rows),   first_part_.reads(0, rows),   first_lse_.reads(0, rows),
               room.rest_part.reads(0, rows), room.rest_lse.reads(0, rows), estimates_.writes(0, rows)};
  op.body = [this, views, width, floats, q_heads = shape.q_heads, room, estimate = heads.estimate](BodyContext& ctx) {
    for (HeadView view : views) {
      view.query = ctx.read<float>(forward_.q()) + view.row * width;
      view.first_out = ctx.read<float>(first_part_) + view.row * width;
      view.first_lse = ctx.read<float>(first_lse_) + std::size_t{view.row} * q_heads;
      view.rest_out = ctx.read<float>(room.rest_part) + view.row * width;
      view.rest_lse = ctx.read<float>(room.rest_lse) + std::size_t{view.row} * q_heads;
      estimate(view, ctx.write<float>(estimates_) + view.row * floats);
    }
  };
  op.stand_in = [this, views, floats, estimate = heads.estimate](BodyContext& ctx) {
    for (const HeadView& view : views) estimate(view, ctx.write<float>(estimates_) + view.row * floats);
  };
  const Event estimated = device_.submit(device_.lane(LaneKind::device_compute), std::move(op));

  const std::size_t bytes = rows * floats * sizeof(float);
  Op copy;
  copy.name = "head estimates to host";
  copy.kind = Kind::copy;
  copy.cause = Cause::transfer;
  copy.layer = context.layer;
  copy.cost.d2h = bytes;
  copy.access = {estimates_.reads(0, rows), host_estimates_.writes(0, rows)};
  copy.after = {estimated};
  copy.body = [this, bytes](BodyContext& ctx) {
    std::memcpy(ctx.write<float>(host_estimates_), ctx.read<float>(estimates_), bytes);
  };
  copy.stand_in = copy.body;
  return device_.submit(device_.lane(LaneKind::d2h), std::move(copy));
}

std::vector<PullTask> TaskAttention::choose(const LayerContext& context, const PulledTasks& tasks, Event on_host) {
  const auto rows = static_cast<std::uint32_t>(context.batch.size());
  device_.host_wait(on_host);
  const auto estimates = device_.host_read<float>(host_estimates_, {0, rows});
  const auto by_host = device_.host_write<std::uint8_t>(by_host_);
  std::fill(by_host.begin(), by_host.end(), std::uint8_t{0});
  std::vector<PullTask> chosen =
      tasks.choose(estimates.first(std::size_t{rows} * context.shape.q_heads * tasks.heads.width));
  if (tasks.choose_ns == 0) return chosen;
  Op op;
  op.name = "choose tasks";
  op.kind = Kind::control;
  op.cause = Cause::scheduler;
  op.layer = context.layer;
  op.cost.work = Work::fixed;
  op.cost.fixed_ns = tasks.choose_ns;
  device_.submit(device_.lane(LaneKind::control), std::move(op));
  return chosen;
}

std::vector<TaskAttention::Pulled> TaskAttention::gather(const LayerContext& context,
                                                         std::vector<PullTask> tasks) const {
  std::vector<Pulled> out;
  out.reserve(tasks.size());
  std::vector<std::shared_ptr<const RowPages>> known;
  std::vector<bool> seen(context.batch.size() * context.shape.kv_heads);
  for (PullTask& task : tasks) {
    TANDEM_CHECK(task.row < context.batch.size() && task.kv_head < context.shape.kv_heads &&
                     task.blocks.size() == context.shape.group() && (task.host || task.device),
                 "a task of row {}, KV head {}, for {} query heads", task.row, task.kv_head, task.blocks.size());
    TANDEM_CHECK(!seen[task.row * context.shape.kv_heads + task.kv_head], "two tasks of row {}, KV head {}", task.row,
                 task.kv_head);
    seen[task.row * context.shape.kv_heads + task.kv_head] = true;
    const SequenceState& sequence = *context.batch[task.row];
    const auto same = [&](const auto& p) { return p->row == task.row && p->id == task.digests.id; };
    auto found = std::find_if(known.begin(), known.end(), same);
    if (found == known.end()) {
      auto pages = std::make_shared<RowPages>();
      pages->id = task.digests.id;
      pages->row = task.row;
      pages->index = stores_.digests.get(task.digests.id);
      TANDEM_CHECK(pages->index.tier() == Tier::host, "tasks are chosen by digests in host memory");
      const Range range{pages->index.tokens.begin / kPageTokens, blocks_for(pages->index.digested(context.layer).end)};
      for (std::uint32_t page = range.begin; page < range.end; ++page) {
        pages->slots.push_back(kv_.slot(sequence.id, context.layer, page, Tier::host));
        TANDEM_CHECK(pages->slots.back() != KvStore::kNoSlot, "block {} of layer {} is not on the host", page,
                     context.layer);
      }
      kv_.append_access(sequence.id, context.layer, range, Tier::host, Range{0, context.shape.kv_heads}, false,
                        pages->access);
      kv_.append_filled(sequence.id, context.layer, range, Tier::host, pages->filled);
      wait_for(pages->filled, pages->index.built[context.layer]);
      known.push_back(std::move(pages));
      found = known.end() - 1;
    }
    Pulled work;
    work.pages = *found;
    work.layer = context.layer;
    work.place = {sequence.request, context.layer, task.kv_head, context.step};
    work.blocks = work.pages->index.digests[context.layer];
    for (std::uint32_t& keep : task.blocks) {
      keep = std::min(keep, work.blocks);
      work.most = std::min(work.most + keep, work.blocks);
    }
    TANDEM_CHECK(work.most > 0, "a task of row {}, KV head {}, without blocks", task.row, task.kv_head);
    work.task = std::move(task);
    out.push_back(std::move(work));
  }
  return out;
}

/// The best blocks of each query head of the task, in ascending order.
void TaskAttention::choose_blocks(BodyContext& ctx, const Pulled& work, const float* query, bool draw,
                                  std::vector<std::vector<std::uint32_t>>& lists) const {
  const ModelShape& shape = forward_.shape();
  const DigestIndex& index = work.pages->index;
  const std::uint32_t group = shape.group(), blocks = work.blocks;
  std::vector<float> scores(std::size_t{group} * blocks);
  if (draw) {
    process_->block_scores(work.place, blocks, scores.data());
  } else {
    const char* values = index.values.read<char>(ctx);
    pool_.parallel_for((blocks + kScoredBlocks - 1) / kScoredBlocks, [&](std::size_t part) {
      const auto first = static_cast<std::uint32_t>(part) * kScoredBlocks;
      const std::uint32_t count = std::min(kScoredBlocks, blocks - first);
      const std::size_t at = first * index.shape.vector_bytes();
      std::vector<float> own(std::size_t{group} * count);
      score_blocks(query, values + index.min_offset(work.layer, work.task.kv_head) + at,
                   values + index.max_offset(work.layer, work.task.kv_head) + at, count,
                   {group, shape.head_dim, index.shape.type}, own.data());
      for (std::uint32_t h = 0; h < group; ++h)
        std::copy_n(own.data() + std::size_t{h} * count, count, scores.data() + std::size_t{h} * blocks + first);
    });
  }
  lists.resize(group);
  for (std::uint32_t h = 0; h < group; ++h) {
    lists[h].resize(work.task.blocks[h]);
    if (!lists[h].empty()) top_k(scores.data() + std::size_t{h} * blocks, blocks, work.task.blocks[h], lists[h].data());
  }
}

/// Pages that the task reads, each for the heads that chose it; counts runs of adjacent blocks, blocks and tokens.
HeadSpans TaskAttention::spans_of(BodyContext& ctx, const Pulled& work,
                                  const std::vector<std::vector<std::uint32_t>>& lists, std::vector<Access>& access,
                                  std::uint32_t& runs, std::uint32_t& blocks, std::uint64_t& tokens) const {
  const DigestIndex& index = work.pages->index;
  const std::uint32_t head = work.task.kv_head;
  std::vector<std::uint32_t> masks(work.blocks);
  for (std::uint32_t h = 0; h < lists.size(); ++h) {
    for (const std::uint32_t block : lists[h]) masks[block] |= 1u << h;
  }
  const char* pages = ctx.read<char>(kv_.host_buffer());
  HeadSpans out{work.task.row, head, {}};
  for (std::uint32_t b = 0; b < work.blocks; ++b) {
    if (masks[b] == 0) continue;
    ++blocks;
    if (b == 0 || masks[b - 1] == 0) ++runs;
    const Range range = index.block_tokens(b);
    for (std::uint32_t token = range.begin; token < range.end; token += kPageTokens) {
      const std::uint32_t slot = work.pages->slots[(token - index.tokens.begin) / kPageTokens];
      const std::uint32_t count = std::min(kPageTokens, range.end - token);
      out.spans.push_back({pages + kv_.k_offset(slot, head), pages + kv_.v_offset(slot, head), count, masks[b]});
      access.push_back(kv_.slot_access(Tier::host, slot, 1, Range{head, head + 1}, false));
      tokens += count;
    }
  }
  return out;
}

std::vector<Op> TaskAttention::host_ops(const Pulled& work, const Room& room, Event query_on_host) {
  const ModelShape& shape = forward_.shape();
  const std::uint32_t group = shape.group(), row = work.task.row, head = work.task.kv_head, layer = work.layer;
  const DigestIndex& index = work.pages->index;
  const Access query = of_head(room.query.reads(row, row + 1), head);
  const Access list_write = of_head(index.selection_access(layer, true), head);
  const Access list_read = of_head(index.selection_access(layer, false), head);
  const auto list_at = [index, layer, head, group](std::uint32_t h) {
    return index.set_offset(layer) + (std::size_t{head} * group + h) * (1 + std::size_t{index.room});
  };

  Op select;
  select.name = "select blocks";
  select.cause = Cause::selection;
  select.layer = layer;
  select.cost.work = Work::select;
  select.cost.dram = work.digest_bytes();
  select.cost.tasks = (work.blocks + kScoredBlocks - 1) / kScoredBlocks;
  select.cost.flops = std::uint64_t{4} * group * work.blocks * shape.head_dim;
  select.access = {query, index.values.reads(layer, layer + 1), list_write};
  select.after = work.pages->filled;
  wait_for(select.after, query_on_host);
  const auto select_body = [this, work, room, list_at](BodyContext& ctx, bool draw) {
    std::vector<std::vector<std::uint32_t>> lists;
    const std::size_t at =
        (std::size_t{work.task.row} * forward_.shape().q_heads + work.task.kv_head * forward_.shape().group()) *
        forward_.shape().head_dim;
    choose_blocks(ctx, work, draw ? nullptr : ctx.read<float>(room.query) + at, draw, lists);
    auto* out = work.pages->index.selection.write<std::uint32_t>(ctx);
    for (std::uint32_t h = 0; h < lists.size(); ++h) {
      out[list_at(h)] = static_cast<std::uint32_t>(lists[h].size());
      std::copy(lists[h].begin(), lists[h].end(), out + list_at(h) + 1);
    }
  };
  select.body = [select_body](BodyContext& ctx) { select_body(ctx, false); };
  select.stand_in = [select_body](BodyContext& ctx) { select_body(ctx, true); };

  Op attend;
  attend.name = "host attention";
  attend.cause = Cause::host_attention;
  attend.layer = layer;
  attend.cost.work = Work::attention;
  attend.cost.upper_bound = true;
  const std::uint64_t small = std::uint64_t{2} * group * shape.head_dim * sizeof(float),
                      most = std::uint64_t{work.most} * index.block;
  const std::uint64_t per_token = 2 * kv_.shape().vector_bytes(), flops = std::uint64_t{4} * group * shape.head_dim;
  attend.cost.dram = small + most * per_token;
  attend.cost.flops = most * flops;
  attend.cost.tasks = 1 + static_cast<std::uint32_t>(most / kPartTokens);
  attend.cost.pieces = work.most;
  const std::uint32_t task = row * shape.kv_heads + head;
  const std::vector<Access> own = {query,
                                   list_read,
                                   of_head(room.host_part.writes(row, row + 1), head),
                                   of_head(room.host_lse.writes(row, row + 1), head),
                                   room.counters.writes(row, layer),
                                   by_host_.writes(task, task + 1),
                                   taken_.writes(row, row + 1)};
  attend.access = own;
  for (const Access& a : work.pages->access) attend.access.push_back(of_head(a, head));
  const auto body = [this, work, room, own, small, per_token, flops, task, list_at](BodyContext& ctx, bool attends) {
    const ModelShape& s = forward_.shape();
    const auto* chosen = work.pages->index.selection.read<std::uint32_t>(ctx);
    std::vector<std::vector<std::uint32_t>> lists(s.group());
    for (std::uint32_t h = 0; h < lists.size(); ++h)
      lists[h].assign(chosen + list_at(h) + 1, chosen + list_at(h) + 1 + chosen[list_at(h)]);
    std::vector<Access> access = own;
    std::uint32_t runs = 0, blocks = 0;
    std::uint64_t tokens = 0;
    const std::vector<HeadSpans> spans = {spans_of(ctx, work, lists, access, runs, blocks, tokens)};
    const std::vector<HeadPart> parts = cut_parts(spans, kv_.shape().vector_bytes());
    if (attends) {
      attend_in_parts(pool_, s, kv_.shape().type, spans, parts, ctx.read<float>(room.query),
                      ctx.write<float>(room.host_part), ctx.write<float>(room.host_lse));
    }
    ctx.write<HostAttended>(room.counters.values)[room.counters.at(work.task.row, work.layer)].tokens += tokens;
    ctx.write<std::uint8_t>(by_host_)[task] = 1;
    ++ctx.write<std::uint64_t>(taken_)[work.task.row];
    Cost cost;
    cost.work = Work::attention;
    cost.dram = small + tokens * per_token;
    cost.flops = tokens * flops;
    cost.tasks = static_cast<std::uint32_t>(parts.size());
    cost.pieces = runs;
    ctx.settle(cost, std::move(access));
  };
  attend.body = [body](BodyContext& ctx) { body(ctx, true); };
  attend.stand_in = [body](BodyContext& ctx) { body(ctx, false); };
  std::vector<Op> ops;
  ops.push_back(std::move(select));
  ops.push_back(std::move(attend));
  return ops;
}

/// One kernel group that reads digests and what it chooses over the link: the same values as on the host.
Op TaskAttention::device_op(const Pulled& work, const Room& room) {
  const ModelShape& shape = forward_.shape();
  const std::uint32_t group = shape.group(), row = work.task.row, head = work.task.kv_head, layer = work.layer;
  const std::uint32_t taken_row = forward_.max_batch() + row;
  Op op;
  op.name = "attend over the link";
  op.kind = Kind::copy;  // bound by the link, which it reads from beginning to end
  op.cause = Cause::recall;
  op.layer = layer;
  op.cost.work = Work::attention;
  op.cost.upper_bound = true;
  op.cost.kernels = 3;  // scores, top-k, attention
  const std::uint64_t small = std::uint64_t{2} * group * shape.head_dim * sizeof(float),
                      most = std::uint64_t{work.most} * work.pages->index.block;
  const std::uint64_t per_token = 2 * kv_.shape().vector_bytes(), flops = std::uint64_t{4} * group * shape.head_dim;
  const std::uint64_t scoring = std::uint64_t{4} * group * work.blocks * shape.head_dim;
  op.cost.hbm = small + std::uint64_t{2} * group * work.blocks * sizeof(float);
  op.cost.h2d = work.digest_bytes() + most * per_token;
  op.cost.pieces = 2 + 2 * work.most;
  op.cost.flops = scoring + most * flops;
  const std::vector<Access> own = {of_head(forward_.q().reads(row, row + 1), head),
                                   work.pages->index.values.reads(layer, layer + 1),
                                   of_head(room.landed_part.writes(row, row + 1), head),
                                   of_head(room.landed_lse.writes(row, row + 1), head),
                                   room.device_attended.writes(row, row + 1),
                                   taken_.writes(taken_row, taken_row + 1)};
  op.access = own;
  for (const Access& a : work.pages->access) op.access.push_back(of_head(a, head));
  op.after = work.pages->filled;
  const auto body = [this, work, room, own, taken_row, per_token, flops, cost = op.cost, scoring](BodyContext& ctx,
                                                                                                  bool attends) {
    const ModelShape& s = forward_.shape();
    const float* query = attends ? ctx.read<float>(forward_.q()) : nullptr;
    const std::size_t at = (std::size_t{work.task.row} * s.q_heads + work.task.kv_head * s.group()) * s.head_dim;
    std::vector<std::vector<std::uint32_t>> lists;
    choose_blocks(ctx, work, attends ? query + at : nullptr, !attends, lists);
    std::vector<Access> access = own;
    std::uint32_t runs = 0, blocks = 0;
    std::uint64_t tokens = 0;
    const std::vector<HeadSpans> spans = {spans_of(ctx, work, lists, access, runs, blocks, tokens)};
    if (attends) {
      attend_in_parts(pool_, s, kv_.shape().type, spans, cut_parts(spans, kv_.shape().vector_bytes()), query,
                      ctx.write<float>(room.landed_part), ctx.write<float>(room.landed_lse));
    }
    ctx.write<std::uint64_t>(room.device_attended)[work.task.row] += tokens;
    ++ctx.write<std::uint64_t>(taken_)[taken_row];
    Cost settled = cost;
    settled.upper_bound = false;
    settled.h2d = work.digest_bytes() + tokens * per_token;
    settled.pieces = 2 + 2 * blocks;
    settled.flops = scoring + tokens * flops;
    ctx.settle(settled, std::move(access));
  };
  op.body = [body](BodyContext& ctx) { body(ctx, true); };
  op.stand_in = [body](BodyContext& ctx) { body(ctx, false); };
  return op;
}

/// Brings what the host computed to where the device's results are.
Event TaskAttention::land(const LayerContext& context, const std::vector<Pulled>& work, const Room& room,
                          Event host_done) {
  struct Part {
    std::uint32_t row = 0, kv_head = 0;
  };
  const ModelShape shape = context.shape;
  Op op;
  op.name = "host partials to device";
  op.kind = Kind::copy;
  op.cause = Cause::transfer;
  op.layer = context.layer;
  op.cost.upper_bound = true;
  op.cost.pieces = 0;
  op.after = {host_done};
  const std::uint64_t bytes = std::uint64_t{shape.group()} * (shape.head_dim + 1) * sizeof(float);
  std::vector<Part> parts;
  std::vector<Access> flags;
  const auto moved = [room](const Part& p) {
    return std::vector<Access>{of_head(room.host_part.reads(p.row, p.row + 1), p.kv_head),
                               of_head(room.host_lse.reads(p.row, p.row + 1), p.kv_head),
                               of_head(room.landed_part.writes(p.row, p.row + 1), p.kv_head),
                               of_head(room.landed_lse.writes(p.row, p.row + 1), p.kv_head)};
  };
  for (const Pulled& w : work) {
    if (!w.task.host) continue;
    parts.push_back({w.task.row, w.task.kv_head});
    const std::uint32_t task = w.task.row * shape.kv_heads + w.task.kv_head;
    flags.push_back(by_host_.reads(task, task + 1));
    for (const Access& a : moved(parts.back())) op.access.push_back(a);
    op.cost.h2d += bytes;
    op.cost.pieces += 2;
  }
  op.access.insert(op.access.end(), flags.begin(), flags.end());
  const auto body = [this, shape, room, parts, flags, moved, bytes](BodyContext& ctx, bool copies) {
    const auto* by_host = ctx.read<std::uint8_t>(by_host_);
    std::vector<Access> access = flags;
    Cost cost;
    cost.pieces = 0;
    for (const Part& p : parts) {
      if (by_host[p.row * shape.kv_heads + p.kv_head] == 0) continue;
      const std::size_t head = std::size_t{p.row} * shape.q_heads + p.kv_head * shape.group();
      const std::vector<Access> own = moved(p);
      access.insert(access.end(), own.begin(), own.end());
      cost.h2d += bytes;
      cost.pieces += 2;
      if (!copies) continue;
      std::copy_n(ctx.read<float>(room.host_part) + head * shape.head_dim, std::size_t{shape.group()} * shape.head_dim,
                  ctx.write<float>(room.landed_part) + head * shape.head_dim);
      std::copy_n(ctx.read<float>(room.host_lse) + head, shape.group(), ctx.write<float>(room.landed_lse) + head);
    }
    cost.pieces = std::max(cost.pieces, 1u);
    ctx.settle(cost, std::move(access));
  };
  op.body = [body](BodyContext& ctx) { body(ctx, true); };
  op.stand_in = [body](BodyContext& ctx) { body(ctx, false); };
  return device_.submit(device_.lane(LaneKind::h2d), std::move(op));
}

void TaskAttention::merge(const LayerContext& context, const std::vector<Pulled>& work, const Room& room,
                          Event landed) {
  const ModelShape shape = context.shape;
  const auto rows = static_cast<std::uint32_t>(context.batch.size());
  const std::size_t group_width = std::size_t{shape.group()} * shape.head_dim;
  std::vector<bool> has_task(std::size_t{rows} * shape.kv_heads);
  Op op;
  op.name = "merge";
  op.layer = context.layer;
  op.access = {forward_.attention().writes(0, rows), first_part_.reads(0, rows), first_lse_.reads(0, rows),
               room.rest_part.reads(0, rows), room.rest_lse.reads(0, rows)};
  for (const Pulled& w : work) {
    const std::uint32_t row = w.task.row, head = w.task.kv_head;
    has_task[row * shape.kv_heads + head] = true;
    op.access.push_back(of_head(room.landed_part.reads(row, row + 1), head));
    op.access.push_back(of_head(room.landed_lse.reads(row, row + 1), head));
  }
  const std::uint64_t vectors = (std::uint64_t{3} * rows * shape.kv_heads + work.size()) * group_width;
  op.cost.hbm = vectors * sizeof(float);
  op.cost.flops = vectors;
  wait_for(op.after, landed);
  op.body = [this, shape, rows, group_width, has_task, room](BodyContext& ctx) {
    for (std::size_t i = 0; i < std::size_t{rows} * shape.kv_heads; ++i) {
      const std::size_t head = i * shape.group(), at = i * group_width;
      const float* parts[3] = {ctx.read<float>(first_part_) + at, ctx.read<float>(room.rest_part) + at, nullptr};
      const float* sums[3] = {ctx.read<float>(first_lse_) + head, ctx.read<float>(room.rest_lse) + head, nullptr};
      if (has_task[i]) {
        parts[2] = ctx.read<float>(room.landed_part) + at;
        sums[2] = ctx.read<float>(room.landed_lse) + head;
      }
      merge_partials(parts, sums, has_task[i] ? 3 : 2, shape.group(), shape.head_dim,
                     ctx.write<float>(forward_.attention()) + at, nullptr);
    }
  };
  device_.submit(device_.lane(LaneKind::device_compute), std::move(op));
}

void TaskAttention::run(const LayerContext& context, const PulledTasks& tasks, const Room& room, Event query_on_host) {
  const Event on_host = estimate(context, tasks.heads, room);
  device_.end_segment();  // a captured segment must not contain a wait for the host
  const std::vector<Pulled> work = gather(context, choose(context, tasks, on_host));
  Event landed;
  if (!work.empty()) {
    TaskBag bag;
    for (const Pulled& w : work)
      bag.allowed.push_back(static_cast<std::uint8_t>((w.task.host ? 1 : 0) | (w.task.device ? 2 : 0)));
    bag.ops = [&](std::uint32_t task, std::uint32_t puller) {
      if (puller == 0) return host_ops(work[task], room, query_on_host);
      std::vector<Op> ops;
      ops.push_back(device_op(work[task], room));
      return ops;
    };
    const LaneId pullers[] = {device_.lane(LaneKind::host_workers), device_.lane(LaneKind::device_compute)};
    const std::vector<Event> last = device_.submit_bag(pullers, bag);
    device_.begin_segment("after tasks");
    for (const Pulled& w : work) {
      if (w.task.device) stores_.digests.get(w.pages->id).read[context.layer] = last[1];
    }
    if (last[0].valid()) landed = land(context, work, room, last[0]);
  } else {
    device_.begin_segment("after tasks");
  }
  merge(context, work, room, landed);
}

std::vector<TaskAttention::Taken> TaskAttention::take_taken(std::uint32_t rows) {
  std::vector<Taken> out(rows);
  if (!taken_) return out;
  const auto taken = device_.host_write<std::uint64_t>(taken_);
  for (std::uint32_t row = 0; row < rows; ++row) {
    out[row].by[static_cast<int>(Side::host)] = std::exchange(taken[row], 0);
    out[row].by[static_cast<int>(Side::device)] = std::exchange(taken[forward_.max_batch() + row], 0);
  }
  return out;
}

}  // namespace tandem
