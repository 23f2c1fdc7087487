#include "engine/mechanisms/work_queue/work_queue.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "engine/common/error.h"
#include "engine/runtime/partials.h"

namespace tandem {
const PartialBuffers& WorkQueue::apart(std::uint32_t i) {
  make_room(1);
  return apart_[i];
}

void WorkQueue::make_room(std::uint32_t width) {
  const ModelShape& s = forward_.shape();
  const std::size_t heads = std::size_t{forward_.max_batch()} * s.q_heads;
  if (!by_host_) {
    for (PartialBuffers& part : apart_)
      part = make_partials(device_, s, forward_.max_batch(), "partial apart", "lse apart");
    by_host_ = device_.allocate_host(std::size_t{forward_.max_batch()} * s.kv_heads, "tasks of the host");
    host_tokens_ =
        device_.allocate_host(std::size_t{forward_.max_batch()} * s.layers * s.kv_heads * sizeof(std::uint64_t),
                              "tokens of the host's tasks");
    device_tasks_ =
        device_.allocate_host(std::size_t{forward_.max_batch()} * sizeof(std::uint64_t), "tasks of the device");
    std::ranges::fill(device_.host_write<std::uint64_t>(host_tokens_), 0u);
    std::ranges::fill(device_.host_write<std::uint64_t>(device_tasks_), 0u);
  }
  if (estimates_.bytes() >= heads * width * sizeof(float)) return;
  estimates_ = device_.allocate_device(heads * width * sizeof(float), "head estimates");
  host_estimates_ = device_.allocate_host(heads * width * sizeof(float), "head estimates on the host");
}

HeadView WorkQueue::seen(const BodyContext& ctx, HeadView view, const Room& room) const {
  const ModelShape& shape = forward_.shape();
  const std::size_t width = std::size_t{shape.q_heads} * shape.head_dim;
  const auto show = [&](const PartialBuffers& part, HeadView::Part& to) {
    to.out = ctx.read<float>(part.out) + view.row * width;
    to.lse = ctx.read<float>(part.lse) + std::size_t{view.row} * shape.q_heads;
  };
  view.query = ctx.read<float>(forward_.q()) + view.row * width;
  show(apart_[0], view.apart[0]);
  show(apart_[1], view.apart[1]);
  show(room.rest, view.rest);
  return view;
}

/// Estimates on the device, copied to the host.
Event WorkQueue::estimate(const LayerContext& context, const HeadEstimate& heads, const Room& room) {
  make_room(heads.width);
  const ModelShape& shape = context.shape;
  const auto rows = static_cast<std::uint32_t>(context.batch.size());
  const std::size_t floats = std::size_t{shape.q_heads} * heads.width,
                    width = std::size_t{shape.q_heads} * shape.head_dim;
  std::vector<HeadView> views;
  views.reserve(rows);
  for (const SequenceState* sequence : context.batch)
    views.push_back({.row = sequence->row, .layer = context.layer, .tokens = sequence->tokens});
  Op op("estimate heads", Cause::selection, context.layer);
  op.cost = heads.cost;
  op.cost.hbm += rows * (4 * width + 3 * shape.q_heads + floats) * sizeof(float);
  op.access = {forward_.q().reads(0, rows), estimates_.writes(0, rows)};
  for (const PartialBuffers* part : on_device(room))
    op.access.insert(op.access.end(), {part->out.reads(0, rows), part->lse.reads(0, rows)});
  op.launch = [&](LaunchContext& ctx) {
    if (!heads.launch) throw_not_on_gpu("These estimates of heads have");
    std::vector<HeadView> filled;
    filled.reserve(views.size());
    for (const HeadView& view : views) filled.push_back(seen(ctx, view, room));
    heads.launch(ctx, filled, ctx.write<float>(estimates_));
  };
  op.has_cost_only_part = true;
  op.body = [this, views, floats, room, estimate = heads.estimate](BodyContext& ctx) {
    for (const HeadView& view : views) {
      estimate(ctx.computes() ? seen(ctx, view, room) : view, ctx.write<float>(estimates_) + view.row * floats);
    }
  };
  const Event estimated = device_.submit(device_.lane(LaneKind::device_compute), std::move(op));

  Op copy("head estimates to host", Cause::transfer, context.layer);
  copy.after = {estimated};
  copy.has_cost_only_part = true;
  copy_rows(copy, rows, {{host_estimates_, estimates_, rows * floats * sizeof(float)}});
  return device_.submit(device_.lane(LaneKind::d2h), std::move(copy));
}

std::vector<PullTask> WorkQueue::choose(const LayerContext& context, const PulledTasks& tasks, Event on_host) {
  const auto rows = static_cast<std::uint32_t>(context.batch.size());
  device_.host_wait(on_host);
  const auto estimates = device_.host_read<float>(host_estimates_, {0, rows});
  const auto by_host = device_.host_write<std::uint8_t>(by_host_);
  std::fill(by_host.begin(), by_host.end(), std::uint8_t{0});
  launched_.assign(std::size_t{rows} * context.shape.kv_heads, false);
  std::vector<PullTask> chosen =
      tasks.choose(estimates.first(std::size_t{rows} * context.shape.q_heads * tasks.heads.width));
  if (tasks.choose_ns == 0) return chosen;
  Op op("choose tasks", Cause::scheduler, context.layer);
  op.kind = Kind::control;
  op.cost.work = Work::fixed;
  op.cost.fixed_ns = tasks.choose_ns;
  device_.submit(device_.lane(LaneKind::control), std::move(op));
  return chosen;
}

std::vector<WorkQueue::Pulled> WorkQueue::gather(const LayerContext& context, std::vector<PullTask> tasks) const {
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
      pages->index = parts_.stores.digests.get(task.digests.id);
      TANDEM_CHECK(pages->index.tier() == Tier::host && pages->index.kind == DigestKind::bounds,
                   "tasks are chosen by bounds in host memory");
      const Range range{pages->index.tokens.begin / kPageTokens, blocks_for(pages->index.digested(context.layer).end)};
      kv_.append_slots(sequence.id, context.layer, range, Tier::host, pages->slots);
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
    if (draws_ != nullptr) {
      work.place = draws_->place(sequence.request, context.layer, context.step, BatchDraws::By::heads);
      work.place.kv_head = task.kv_head;
    }
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

/// Host results of these KV heads, rows one after another: first all outputs, then all sums, so that what is adjacent
/// crosses as one.
void WorkQueue::copy_results(Copier& copier, std::span<const std::uint32_t> heads, const Room& room) const {
  if (heads.empty()) return;
  const std::size_t bytes = forward_.shape().group() * sizeof(float);
  copier.between(room.host.landed.out, room.host.part).add_rows(heads, bytes * forward_.shape().head_dim);
  copier.short_runs(room.host.landed.lse, room.host.lse).add_rows(heads, bytes);
}

Cost WorkQueue::landing_cost(std::span<const std::uint32_t> heads, const Room& room) const {
  Cost cost;
  cost.pieces = 0;
  Copier counter(cost);
  copy_results(counter, heads, room);
  cost.pieces = std::max(cost.pieces, 1u);
  return cost;
}

/// Brings what the host computed to where the device's results are.
Event WorkQueue::land(const LayerContext& context, const std::vector<Pulled>& work, const Room& room,
                      std::vector<Event> host_done) {
  const ModelShape shape = context.shape;
  Op op("host partials to device", Cause::transfer, context.layer);
  op.kind = Kind::copy;
  op.cost.upper_bound = true;
  op.cost.pieces = 0;
  op.after = std::move(host_done);
  const std::uint64_t sum_bytes = std::uint64_t{shape.group()} * sizeof(float),
                      bytes = sum_bytes * (shape.head_dim + 1);
  std::vector<std::uint32_t> parts;  // [row][KV head] numbers of the host's tasks
  std::vector<Access> flags;
  const auto moved = [room, kv_heads = shape.kv_heads](std::uint32_t part) {
    const std::uint32_t row = part / kv_heads, head = part % kv_heads;
    return std::vector<Access>{of_head(room.host.part.reads(row, row + 1), head),
                               of_head(room.host.lse.reads(row, row + 1), head),
                               of_head(room.host.landed.out.writes(row, row + 1), head),
                               of_head(room.host.landed.lse.writes(row, row + 1), head)};
  };
  for (const Pulled& w : work) {
    if (!w.task.host) continue;
    parts.push_back(w.task.row * shape.kv_heads + w.task.kv_head);
    flags.push_back(by_host_.reads(parts.back(), parts.back() + 1));
    for (const Access& a : moved(parts.back())) op.access.push_back(a);
    op.cost.h2d += bytes;
    op.cost.pieces += 2;  // at most: outputs and their log sums
    op.cost.short_bytes += sum_bytes;
    op.cost.short_pieces += 1;
  }
  std::ranges::sort(parts);  // in the order of memory, so that what is adjacent crosses as one
  op.access.insert(op.access.end(), flags.begin(), flags.end());
  op.has_cost_only_part = true;
  op.body = [this, room, parts, flags, moved](BodyContext& ctx) {
    const auto* by_host = ctx.read<std::uint8_t>(by_host_);
    std::vector<Access> access = flags;
    std::vector<std::uint32_t> heads;
    for (const std::uint32_t part : parts) {
      if (by_host[part] == 0) continue;
      heads.push_back(part);
      const std::vector<Access> own = moved(part);
      access.insert(access.end(), own.begin(), own.end());
    }
    if (Copier copier(ctx); ctx.computes()) copy_results(copier, heads, room);
    ctx.settle(landing_cost(heads, room), std::move(access));
  };
  op.launch = [&](LaunchContext& ctx) {  // those of tasks that the GPU did not take, and takes no more of
    std::vector<std::uint32_t> heads;
    std::ranges::copy_if(parts, std::back_inserter(heads), [&](std::uint32_t part) { return !launched_[part]; });
    CopyList list;
    Copier copier(ctx, list);
    copy_results(copier, heads, room);
    list.copy(CopyWay::over_link, ctx.stream());
    ctx.settle(landing_cost(heads, room));
  };
  return device_.submit(device_.lane(LaneKind::h2d), std::move(op));
}

void WorkQueue::merge(const LayerContext& context, const std::vector<Pulled>& work, const Room& room, Event landed) {
  const ModelShape shape = context.shape;
  const auto rows = static_cast<std::uint32_t>(context.batch.size());
  std::vector<bool> has_task(std::size_t{rows} * shape.kv_heads);
  Op op("merge", Cause::none, context.layer);
  op.access = {forward_.attention().writes(0, rows)};
  for (const PartialBuffers* part : on_device(room))
    op.access.insert(op.access.end(), {part->out.reads(0, rows), part->lse.reads(0, rows)});
  for (const Pulled& w : work) {
    const std::uint32_t row = w.task.row, head = w.task.kv_head;
    has_task[row * shape.kv_heads + head] = true;
    op.access.push_back(of_head(room.host.landed.out.reads(row, row + 1), head));
    op.access.push_back(of_head(room.host.landed.lse.reads(row, row + 1), head));
  }
  const std::uint64_t vectors =
      (std::uint64_t{4} * rows * shape.kv_heads + work.size()) * shape.group() * shape.head_dim;
  op.cost.hbm = vectors * sizeof(float);
  op.cost.flops = vectors;
  wait_for(op.after, landed);
  std::vector<PartialBuffers> parts;
  for (const PartialBuffers* part : on_device(room)) parts.push_back(*part);
  if (work.empty())
    has_task.clear();
  else
    parts.push_back(room.host.landed);
  set_merge(op, shape, rows, std::move(parts), forward_.attention(), std::move(has_task));
  const Event merged = device_.submit(device_.lane(LaneKind::device_compute), std::move(op));
  // After all tasks, whoever took them.
  for (const Pulled& w : work) parts_.stores.digests.get(w.pages->id).read[context.layer] = merged;
}

WorkQueue::Crew WorkQueue::crew(const LayerContext& context, const PulledTasks& tasks, std::size_t host_tasks) {
  const std::vector<LaneId> lanes = device_.worker_lanes();
  const std::uint32_t threads = device_.lanes()[lanes.front()].threads;
  const auto most = static_cast<std::uint32_t>(std::clamp<std::size_t>(host_tasks, 1, lanes.size()));
  std::uint32_t workers = tasks.workers;
  if (workers == 0) {
    // While one chooses blocks the others read. More of them than keep all threads choosing bring nothing, and with few
    // tasks each all wait for the last one's last.
    constexpr std::uint32_t kTasksEach = 8;
    workers =
        std::min(std::max(static_cast<std::uint32_t>(host_tasks) / kTasksEach, 2u), threads / context.shape.group());
  }
  workers = std::clamp(workers, 1u, std::min(most, threads));
  return {{lanes.begin(), lanes.begin() + workers}, threads};
}

ThreadPool& WorkQueue::pool_of(std::uint32_t worker, const Crew& crew) {
  if (crew.lanes.size() == 1 || device_.simulated()) return pool_;  // simulated bodies run one after the other
  std::unique_ptr<ThreadPool>& pool = pools_[{worker, crew.of(worker)}];
  if (pool == nullptr) pool = std::make_unique<ThreadPool>(crew.of(worker));
  return *pool;
}

void WorkQueue::finish(const LayerContext& context, const Room& room, Event query_on_host) {
  const PulledTasks& tasks = tasks_;
  const Event on_host = estimate(context, tasks.heads, room);
  device_.end_segment();  // a segment must not contain a wait for the host
  const auto all = std::make_shared<const std::vector<Pulled>>(gather(context, choose(context, tasks, on_host)));
  const std::vector<Pulled>& work = *all;
  Event landed;
  if (!work.empty()) {
    QueuedTasks bag;
    for (const Pulled& w : work)
      bag.allowed.push_back(static_cast<std::uint8_t>((w.task.host ? 1 : 0) | (w.task.device ? 2 : 0)));
    if (tasks.pace[0] > 0 && tasks.pace[1] > 0) {
      bag.pace = {tasks.pace[static_cast<int>(Side::host)], tasks.pace[static_cast<int>(Side::device)]};
      for (const Pulled& w : work) bag.work.push_back(w.task.work);
    }
    const Crew crew = this->crew(
        context, tasks,
        static_cast<std::size_t>(std::count_if(work.begin(), work.end(), [](const Pulled& w) { return w.task.host; })));
    const auto workers = static_cast<std::uint32_t>(crew.lanes.size());
    bag.after.resize(2);
    for (const Pulled& w : work)
      for (std::vector<Event>& after : bag.after)
        for (const Event& filled : w.pages->filled) wait_for(after, filled);
    wait_for(bag.after[0], query_on_host);
    std::vector<ThreadPool*> pools;  // of the workers, whose threads ask for operations
    pools.reserve(workers);
    for (std::uint32_t worker = 0; worker < workers; ++worker) pools.push_back(&pool_of(worker, crew));
    bag.ops = [this, all, room = std::make_shared<const Room>(room), query_on_host, crew, pools](std::uint32_t task,
                                                                                                 std::uint32_t puller) {
      const std::shared_ptr<const Pulled> w(all, &(*all)[task]);
      if (puller < pools.size()) return host_ops(w, room, query_on_host, crew.of(puller), *pools[puller]);
      std::vector<Op> ops;
      ops.push_back(device_op(w, room));
      return ops;
    };
    std::vector<Puller> pullers;
    pullers.reserve(workers + 1);
    for (const LaneId lane : crew.lanes) pullers.push_back({lane, 0});  // the host is side 0
    pullers.push_back({device_.lane(LaneKind::device_compute), 1});
    std::vector<Event> last = device_.submit_queued(pullers, bag);
    device_.begin_segment("after tasks");
    last.pop_back();
    std::erase_if(last, [](const Event& event) { return !event.valid(); });
    if (!last.empty()) landed = land(context, work, room, std::move(last));
  } else {
    device_.begin_segment("after tasks");
  }
  merge(context, work, room, landed);
}

std::vector<AttentionFinisher::Taken> WorkQueue::take_taken(std::uint32_t rows) {
  std::vector<Taken> out(rows);
  if (!host_tokens_) return out;
  const ModelShape& s = forward_.shape();
  const std::uint32_t tasks = s.layers * s.kv_heads;
  const auto by_host = device_.host_write<std::uint64_t>(host_tokens_, {0, rows * tasks});
  const auto by_device = device_.host_write<std::uint64_t>(device_tasks_, {0, rows});
  for (std::uint32_t row = 0; row < rows; ++row) {
    out[row].by[static_cast<int>(Side::device)] = std::exchange(by_device[row], 0);
    out[row].host_tokens.resize(s.layers);
    for (std::uint32_t i = 0; i < tasks; ++i) {
      const std::uint64_t tokens = std::exchange(by_host[std::size_t{row} * tasks + i], 0);
      out[row].host_tokens[i / s.kv_heads] += tokens;
      out[row].by[static_cast<int>(Side::host)] += tokens > 0 ? 1 : 0;
    }
  }
  return out;
}

}  // namespace tandem
