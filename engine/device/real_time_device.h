// The part that the devices `emu` and `cuda` share.
#pragma once

#include <chrono>

#include "engine/device/device.h"

namespace tandem {

/// A device with a real clock, on which segments and the control thread's accesses have no effect.
class RealTimeDevice : public Device {
 public:
  bool simulated() const override { return false; }
  Nanos now() const override {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - epoch_).count();
  }

 protected:
  using Device::Device;
  void host_access(const Access&) override {}
  /// The control thread hands over an operation: from `entered` until now.
  TraceRecord launch_record(const Op& op, LaneId lane_id, Nanos entered) const {
    return {.name = lanes_[lane_id].kind == LaneKind::host_workers ? "submit" : "launch",
            .kind = Kind::control,
            .cause = Cause::launch,
            .lane = control_,
            .layer = op.layer,
            .start = entered,
            .end = now(),
            .cost = {}};
  }
  /// The control thread sees an event.
  TraceRecord wait_record(Nanos seen) const {
    return {.name = "host wait", .kind = Kind::wait, .lane = control_, .start = seen, .end = seen, .cost = {}};
  }

 private:
  const std::chrono::steady_clock::time_point epoch_ = std::chrono::steady_clock::now();
};

}  // namespace tandem
