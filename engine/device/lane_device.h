// Bookkeeping of lanes that all devices share: the open segment, and each lane's operations.
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <vector>

#include "engine/device/device.h"

namespace tandem {

/// A lane's operations.
struct LaneHistory {
  std::uint64_t submitted = 0, drained = 0;  // event values: given out, and done at the last drain
  std::vector<std::int64_t> records;         // trace records of the operations since the last drain
  std::exception_ptr error;                  // of operation `failed_at`; later operations do not run their bodies
  std::uint64_t failed_at = 0;
};

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
  /// Counts everything submitted as done, and forgets records and errors.
  void all_drained();

  const std::vector<LaneInfo> lanes_;
  const std::string clock_name_;
  const LaneId control_;
  std::vector<LaneHistory> history_;  // by lane
  const char* segment_ = nullptr;     // name of the open one
};

}  // namespace tandem
