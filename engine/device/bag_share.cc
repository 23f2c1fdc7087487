#include "engine/device/bag_share.h"

#include <utility>
#include <vector>

#include "engine/device/memory.h"

namespace tandem {
namespace {

void add(Cost& sum, const Cost& cost) {
  sum.hbm += cost.hbm;
  sum.dram += cost.dram;
  sum.contiguous += cost.contiguous;
  sum.h2d += cost.h2d;
  sum.d2h += cost.d2h;
  sum.peer += cost.peer;
  sum.flops += cost.flops;
  sum.solved += cost.solved;
  sum.ranked += cost.ranked;
  sum.pieces += cost.pieces;
  sum.short_bytes += cost.short_bytes;
  sum.short_pieces += cost.short_pieces;
  sum.tasks += cost.tasks;
}

}  // namespace

std::shared_ptr<TaskQueue> queue_of(const TaskBag& bag, std::span<const Puller> pullers) {
  return std::make_shared<TaskQueue>(bag.allowed, bag.work, bag.pace, workers_by_side(pullers));
}

std::optional<Op> bag_share(const TaskBag& bag, const Puller& puller, std::uint32_t number,
                            std::shared_ptr<TaskQueue> queue, BodyContext::Reach reach) {
  const auto tasks = std::make_shared<std::vector<std::vector<Op>>>(bag.allowed.size());
  Op all;
  bool any = false;
  for (std::uint32_t task = 0; task < bag.allowed.size(); ++task) {
    if ((bag.allowed[task] >> puller.side & 1) == 0) continue;
    any = true;
    (*tasks)[task] = bag.ops(task, number);
    for (const Op& op : (*tasks)[task]) {
      all.name = op.name;
      all.kind = op.kind;
      all.cause = op.cause;
      all.layer = op.layer;
      for (const Event& event : op.after) wait_for(all.after, event);
    }
  }
  if (!any) return std::nullopt;
  all.body = [queue = std::move(queue), tasks, side = puller.side, reach](BodyContext& ctx) {
    Cost sum;
    sum.pieces = 0;
    while (const auto task = queue->pull(side)) {
      for (const Op& op : (*tasks)[*task]) {
        BodyContext own(op, reach);
        if (op.body) op.body(own);
        add(sum, own.settled_cost() ? own.cost() : op.cost);
      }
    }
    ctx.settle(sum);
  };
  return all;
}

}  // namespace tandem
