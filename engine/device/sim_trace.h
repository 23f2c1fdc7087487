// The trace of a simulation as it grows, and its control thread: the one lane whose times are numbers at once, since
// everything submitted later is submitted by it. Times of the other lanes are the scheduler's, known at the end.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/device/scheduler.h"
#include "engine/device/trace.h"

namespace tandem {

class SimTrace {
 public:
  explicit SimTrace(LaneId control) : control_(control) {}

  /// The control thread's clock.
  Nanos now() const { return clock_; }
  /// The control thread's last record, -1 before the first.
  std::int64_t last_control() const { return last_control_; }
  const TraceRecord& record(std::int64_t index) const { return records_[static_cast<std::size_t>(index)]; }

  /// A record of any lane, without times; returns its number.
  std::int64_t add(const char* name, Kind kind, Cause cause, LaneId lane, std::uint32_t layer, const Cost& cost);

  /// A record of the control thread, whose clock goes to its end. `critical`: what it waited for.
  std::int64_t add_control(const char* name, Kind kind, Cause cause, std::uint32_t layer, const Cost& cost,
                           Nanos duration, Nanos start, std::int64_t critical);

  /// The control thread launches or submits something, which takes it `duration` from now on.
  std::int64_t add_launch(const char* name, std::uint32_t layer, Nanos duration);

  /// The control thread waits until `time` without a record.
  void wait_until(Nanos time) { clock_ = clock_ < time ? time : clock_; }

  /// A step ends now.
  void end_step(std::uint32_t step);

  /// The trace so far, with the scheduler's times; record numbers start again at 0 and the next step's window now.
  Trace take(const Scheduler& scheduler, std::string clock_name, std::vector<LaneInfo> lanes);

 private:
  LaneId control_;
  std::vector<TraceRecord> records_;
  std::vector<StepMark> steps_;
  Nanos clock_ = 0, window_begin_ = 0;
  std::int64_t last_control_ = -1;
};

}  // namespace tandem
