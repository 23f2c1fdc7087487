#include "engine/device/sim_trace.h"

#include <utility>

namespace tandem {

std::int64_t SimTrace::add(const char* name, Kind kind, Cause cause, LaneId lane, std::uint32_t layer,
                           const Cost& cost) {
  records_.push_back({.name = name, .kind = kind, .cause = cause, .lane = lane, .layer = layer, .cost = cost});
  return static_cast<std::int64_t>(records_.size()) - 1;
}

std::int64_t SimTrace::add_control(const char* name, Kind kind, Cause cause, std::uint32_t layer, const Cost& cost,
                                   Nanos duration, Nanos start, std::int64_t critical) {
  last_control_ = add(name, kind, cause, control_, layer, cost);
  TraceRecord& record = records_.back();
  record.start = start;
  record.end = clock_ = start + duration;
  record.critical = critical;
  return last_control_;
}

std::int64_t SimTrace::add_launch(const char* name, std::uint32_t layer, Nanos duration) {
  return add_control(name, Kind::control, Cause::launch, layer, Cost{}, duration, clock_, last_control_);
}

void SimTrace::end_step(std::uint32_t step) {
  steps_.push_back({step, window_begin_, clock_, last_control_});
  window_begin_ = clock_;
}

Trace SimTrace::take(const Scheduler& scheduler, std::string clock_name, std::vector<LaneInfo> lanes) {
  for (std::size_t i = 0; i < records_.size(); ++i) {
    TraceRecord& record = records_[i];
    if (record.lane == control_) continue;
    const ScheduledTime& time = scheduler.time(static_cast<std::int64_t>(i));
    record.start = time.start;
    record.end = time.end;
    record.critical = time.critical;
  }
  last_control_ = -1;
  window_begin_ = clock_;
  return {std::move(clock_name), std::move(lanes), std::exchange(records_, {}), std::exchange(steps_, {})};
}

}  // namespace tandem
