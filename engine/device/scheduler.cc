#include "engine/device/scheduler.h"

#include <algorithm>
#include <limits>

#include "engine/common/error.h"

namespace tandem {

void Scheduler::submit(std::size_t lane, std::int64_t record, ScheduledOp op) {
  TANDEM_CHECK(op.earliest >= now_, "operation {} may start at {} ns, but {} ns have passed", record, op.earliest,
               now_);
  if (times_.size() <= static_cast<std::size_t>(record)) times_.resize(static_cast<std::size_t>(record) + 1);
  lanes_[lane].queue.emplace_back(record, std::move(op));
}

bool Scheduler::resolve(Lane& lane) {
  const ScheduledOp& op = lane.queue.front().second;
  for (const Dependency& dependency : op.after)
    if (time(dependency.record).end < 0) return false;
  // Latest arrival is critical. Of equals the lane's own predecessor comes first, then the edges in their order.
  lane.until = op.earliest;
  lane.critical = op.earliest_record;
  for (const Dependency& dependency : op.after) {
    const Nanos arrival = time(dependency.record).end + dependency.latency;
    if (arrival > lane.until || (arrival == lane.until && lane.critical == op.earliest_record)) {
      lane.until = arrival;
      lane.critical = dependency.record;
    }
  }
  if (lane.last_record >= 0 && time(lane.last_record).end >= lane.until) {
    lane.until = time(lane.last_record).end;
    lane.critical = lane.last_record;
  }
  lane.resolved = true;
  return true;
}

void Scheduler::finish(Lane& lane) {
  const std::int64_t record = lane.queue.front().first;
  times_[static_cast<std::size_t>(record)].end = now_;
  lane.last_record = record;
  lane.queue.pop_front();
  lane.state = State::waiting;
  lane.resolved = false;
}

void Scheduler::update_rates() {
  for (Lane& lane : lanes_) lane.rate = kUnit;
  for (const auto& [begin, end] :
       {std::pair<std::size_t, std::size_t>{0, kHostResources}, {kHostResources, kResourceCount}}) {
    std::array<std::uint64_t, kResourceCount> sum{};
    for (const Lane& lane : lanes_) {
      if (lane.state != State::flowing) continue;
      const auto& share = lane.queue.front().second.phases.share;
      for (std::size_t r = begin; r < end; ++r) sum[r] += share[r] * lane.rate / kUnit;
    }
    for (Lane& lane : lanes_) {
      if (lane.state != State::flowing) continue;
      const auto& share = lane.queue.front().second.phases.share;
      std::uint64_t most = kUnit;
      for (std::size_t r = begin; r < end; ++r)
        if (share[r] != 0) most = std::max(most, sum[r]);
      lane.rate = lane.rate * kUnit / most;
    }
  }
}

// Advances to the next thing that happens and handles what happens then. False when nothing is left.
bool Scheduler::step() {
  Nanos next = std::numeric_limits<Nanos>::max();
  for (Lane& lane : lanes_) {
    if (lane.queue.empty()) continue;
    if (lane.state == State::waiting && !lane.resolved && !resolve(lane)) continue;
    if (lane.state == State::flowing) {
      next = std::min(next, now_ + static_cast<Nanos>((lane.remaining + lane.rate - 1) / lane.rate));
    } else {
      next = std::min(next, std::max(now_, lane.until));
    }
  }
  if (next == std::numeric_limits<Nanos>::max()) return false;

  const std::uint64_t elapsed = static_cast<std::uint64_t>(next - now_);
  now_ = next;
  bool flows_changed = false;
  for (Lane& lane : lanes_) {
    if (lane.queue.empty()) continue;
    const auto& [record, op] = lane.queue.front();
    if (lane.state == State::flowing) {
      lane.remaining -= std::min(lane.remaining, elapsed * lane.rate);
      if (lane.remaining == 0) {
        finish(lane);
        flows_changed = true;
      }
      continue;
    }
    if (lane.state == State::waiting) {
      if (!lane.resolved || lane.until > now_) continue;
      ScheduledTime& time = times_[static_cast<std::size_t>(record)];
      time.start = now_;
      time.critical = lane.critical;
      lane.state = State::fixed;
      lane.until = now_ + op.phases.fixed;
    }
    if (lane.until > now_) continue;
    if (op.phases.flow == 0) {
      finish(lane);
    } else {
      lane.state = State::flowing;
      lane.remaining = static_cast<std::uint64_t>(op.phases.flow) * kUnit;
      flows_changed = true;
    }
  }
  if (flows_changed) update_rates();
  return true;
}

const ScheduledTime& Scheduler::run_until(std::int64_t record) {
  while (time(record).end < 0)
    TANDEM_CHECK(step(), "operation {} never ends: something it waits for was not submitted", record);
  return time(record);
}

void Scheduler::run_until_any(std::span<const std::int64_t> records) {
  const auto has_ended = [this](std::int64_t record) { return ended(record); };
  while (std::ranges::none_of(records, has_ended))
    TANDEM_CHECK(step(), "none of {} operations ever ends: something they wait for was not submitted", records.size());
}

Nanos Scheduler::run_all() {
  while (step()) {
  }
  for (const Lane& lane : lanes_) TANDEM_CHECK(lane.queue.empty(), "a lane never becomes empty");
  return now_;
}

void Scheduler::forget() {
  for (Lane& lane : lanes_) {
    TANDEM_CHECK(lane.queue.empty(), "times are forgotten while operations run");
    lane.last_record = -1;
    lane.resolved = false;
  }
  times_.clear();
}

}  // namespace tandem
