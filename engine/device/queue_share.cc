#include "engine/device/queue_share.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/common/error.h"

namespace tandem {
namespace {

void add(Cost& sum, const Cost& cost) {
  for (const auto amount : {&Cost::hbm, &Cost::dram, &Cost::contiguous, &Cost::h2d, &Cost::d2h, &Cost::peer,
                            &Cost::context, &Cost::flops, &Cost::solved, &Cost::ranked, &Cost::short_bytes})
    sum.*amount += cost.*amount;
  for (const auto count : {&Cost::pieces, &Cost::short_pieces, &Cost::tasks}) sum.*count += cost.*count;
}

/// Whether who waits for all of `waited` has waited for `event`.
bool is_behind(std::span<const Event> waited, Event event) {
  return !event.valid() || std::any_of(waited.begin(), waited.end(),
                                       [&](const Event& e) { return e.lane == event.lane && e.value >= event.value; });
}

}  // namespace

std::span<const Event> declared_waits(const QueuedTasks& bag, std::uint32_t side) {
  return bag.after.empty() ? std::span<const Event>() : bag.after[side];
}

void check_waits(std::span<const Event> declared, const Op& op) {
  for (const Event& event : op.after)
    TANDEM_CHECK(is_behind(declared, event), "'{}' waits for what its bag does not declare", op.name);
}

std::shared_ptr<TaskQueue> queue_of(const QueuedTasks& bag, std::span<const Puller> pullers) {
  std::vector<std::uint32_t> workers;  // by side
  for (const Puller& puller : pullers) {
    TANDEM_CHECK(bag.after.empty() || puller.side < bag.after.size(), "a bag of {} sides is pulled from for side {}",
                 bag.after.size(), puller.side);
    if (workers.size() <= puller.side) workers.resize(puller.side + 1);
    ++workers[puller.side];
  }
  return std::make_shared<TaskQueue>(bag.allowed, bag.work, bag.pace, std::move(workers));
}

std::optional<Op> queue_share(const QueuedTasks& bag, const Puller& puller, std::uint32_t number,
                              std::shared_ptr<TaskQueue> queue, BodyContext::Reach reach) {
  const auto mine = [&](std::uint8_t sides) { return (sides >> puller.side & 1) != 0; };
  const auto first = std::ranges::find_if(bag.allowed, mine);
  if (first == bag.allowed.end()) return std::nullopt;
  const std::vector<Op> like = bag.ops(static_cast<std::uint32_t>(first - bag.allowed.begin()), number);
  TANDEM_CHECK(!like.empty(), "a task without operations");
  Op all;
  all.name = like.back().name;
  all.kind = like.back().kind;
  all.cause = like.back().cause;
  all.layer = like.back().layer;
  const std::span<const Event> declared = declared_waits(bag, puller.side);
  all.after.assign(declared.begin(), declared.end());
  // A task's operations are made by who takes it: made ahead, each would be once for every lane, on one thread.
  all.body = [queue = std::move(queue), ops = bag.ops, after = all.after, side = puller.side, number,
              reach](BodyContext& ctx) {
    Cost sum;
    sum.pieces = 0;
    while (const auto task = queue->pull(side)) {
      for (const Op& op : ops(*task, number)) {
        check_waits(after, op);
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
