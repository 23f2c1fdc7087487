// Discrete-event simulation of lanes in integer virtual nanoseconds. Knows operations by number only.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "engine/device/cost_model.h"
#include "engine/device/types.h"

namespace tandem {

/// What an operation still waits for: operation `record` (a number given to Scheduler::submit) plus hand-off latency.
struct Dependency {
  std::int64_t record = -1;
  Nanos latency = 0;
};

struct ScheduledOp {
  Phases phases;
  Nanos earliest = 0;                 // known at submission: end of the launch, dependencies on the control lane
  std::int64_t earliest_record = -1;  // who set `earliest`
  std::vector<Dependency> after;      // operations of this scheduler
};

/// When an operation ran, and the record that arrived last before it started.
struct ScheduledTime {
  Nanos start = 0, end = -1;  // end < 0: not known yet
  std::int64_t critical = -1;
};

/// Lanes run their operations in order. Time advances only as far as run_until asks for: what is submitted after a wait
/// may start at its end, before operations in flight have finished.
class Scheduler {
 public:
  explicit Scheduler(std::size_t lane_count) : lanes_(lane_count) {}

  /// Appends to a lane. `record` numbers must not repeat and are remembered until forget(). `earliest` must not lie
  /// before the end of the last operation that run_until returned for.
  void submit(std::size_t lane, std::int64_t record, ScheduledOp op);

  /// Simulates until `record` has ended and returns its times.
  const ScheduledTime& run_until(std::int64_t record);

  /// Simulates until one of these has ended, or more of them at the same time.
  void run_until_any(std::span<const std::int64_t> records);

  bool ended(std::int64_t record) const { return time(record).end >= 0; }
  Nanos now() const { return now_; }

  /// Simulates until every lane is empty; returns the time of the last end (the latest run_until where nothing ran).
  Nanos run_all();

  const ScheduledTime& time(std::int64_t record) const { return times_[static_cast<std::size_t>(record)]; }

  /// Forgets all times; every lane must be empty. Record numbers start again at 0.
  void forget();

 private:
  enum class State : std::uint8_t { waiting, fixed, flowing };
  struct Lane {
    std::deque<std::pair<std::int64_t, ScheduledOp>> queue;
    State state = State::waiting;
    bool resolved = false;  // all dependencies of the head have ended; `until` is when it may start
    Nanos until = 0;        // waiting: may start, fixed: fixed phase ends
    std::int64_t critical = -1;
    std::uint64_t remaining = 0;  // flow work left, in 1/kUnit ns
    std::uint64_t rate = kUnit;   // progress per ns, in 1/kUnit
    std::int64_t last_record = -1;
  };

  bool resolve(Lane& lane);
  bool step();
  void update_rates();
  void finish(Lane& lane);

  std::vector<Lane> lanes_;
  std::vector<ScheduledTime> times_;
  Nanos now_ = 0;
};

}  // namespace tandem
