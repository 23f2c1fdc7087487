// Bookkeeping of lanes that all devices share: the open segment, and each lane's operations.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <string>
#include <vector>

#include "engine/device/device.h"

namespace tandem {

struct LaneHistory {
  std::uint64_t submitted = 0, drained = 0;  // event values: given out, and done at the last drain
  std::vector<std::int64_t> records;         // trace records of the operations since the last drain
  std::exception_ptr error;                  // of operation `failed_at`; later operations do not run their bodies
  std::uint64_t failed_at = 0;
};

/// One lane of each kind, and further host workers (Device::worker_lanes). The compute lane is the inference lane.
std::vector<LaneInfo> make_lanes(std::uint32_t host_threads);

class LaneDevice : public Device {
 public:
  std::string clock_name() const override { return clock_name_; }
  const std::vector<LaneInfo>& lanes() const override { return lanes_; }
  void begin_segment(const char* name) override;
  void end_segment() override;
  bool in_segment() const override { return segment_ != nullptr; }

 protected:
  LaneDevice(std::vector<LaneInfo> lanes, std::string clock_name);

  /// LogicError for a lane that the device does not have.
  void check_lane(LaneId lane_id, const char* name) const;
  /// LogicError for an event that the device has not given out. `name`: of what waits for it.
  void check_event(Event event, const char* name) const;
  /// Trace record of an event; -1 where it was done at the last drain.
  std::int64_t record_of(Event event) const;
  /// The lane's last record; -1 where there is none since the last drain.
  std::int64_t last_of(LaneId lane_id) const;
  /// Error of the event's operation or of one before it on the lane; nullptr where there is none.
  std::exception_ptr error_of(Event event) const;
  void rethrow_error_of(Event event);  // throws that error, which is reported then
  /// The lane's operations from `value` on fail with this error, unless an earlier one has.
  void fail(LaneId lane_id, std::uint64_t value, const std::exception_ptr& error);
  void rethrow_unreported();  // throws an error that no wait has reported
  void all_drained();         // counts everything submitted as done, and forgets records and errors

  const std::vector<LaneInfo> lanes_;
  const std::string clock_name_;
  const LaneId control_;
  std::vector<LaneHistory> history_;  // by lane
  const char* segment_ = nullptr;     // name of the open one
  std::int64_t last_control_ = -1;    // the control thread's last record
  Nanos window_begin_ = 0;            // of the open step
  std::exception_ptr unreported_;     // a body's, that no wait has thrown yet
};

/// A device with a real clock, on which segments and the control thread's accesses have no effect.
class RealTimeDevice : public LaneDevice {
 public:
  bool simulated() const override { return false; }
  Nanos now() const override {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - epoch_).count();
  }

 protected:
  using LaneDevice::LaneDevice;
  void host_access(const Access&) override {}
  /// The control thread hands over an operation: from `entered` until now.
  TraceRecord launch_record(const Op& op, LaneId lane_id, Nanos entered) const;
  TraceRecord wait_record(Nanos seen) const;  // the control thread sees an event

 private:
  const std::chrono::steady_clock::time_point epoch_ = std::chrono::steady_clock::now();
};

}  // namespace tandem
