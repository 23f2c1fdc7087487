// Records what a simulated device is told, for replays on other hardware profiles (sim_device.h).
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/device/sim_device.h"

namespace tandem {

/// A fixed time that the engine takes from the profile, as another profile has it.
inline void take_fixed_time(Op& op, const HardwareProfile& profile) {
  const std::string_view name = op.name;
  if (name == kPolicy) op.cost.fixed_ns = profile.control.policy_ns;
  if (name == kFramework) op.cost.fixed_ns = profile.device.layer_ns;
  if (name == kEngineCode) op.cost.fixed_ns = profile.control.layer_ns;
}

class SimRecorder {
 public:
  /// Up to the end of `steps` decode steps. `before`: by lane, the operations that were submitted until now.
  void start(std::uint32_t steps, const SimOptions& options, std::vector<std::uint64_t> before) {
    recorded_ = {};
    recorded_.options = options;
    before_ = std::move(before);
    steps_left_ = steps;
  }
  SimCalls take() {
    steps_left_ = 0;
    return std::move(recorded_);
  }

  bool on() const { return steps_left_ > 0; }
  void add(SimCall call) {
    if (on()) recorded_.calls.push_back(std::move(call));
  }
  /// A call that a lane takes a task by, at a time that was compared with others' times.
  void add_decided_by_times(SimCall call) {
    add(std::move(call));
    recorded_.times_decide = recorded_.times_decide || on();
  }
  void step_ended() {
    if (!on()) return;
    --steps_left_;
    recorded_.step_ends.push_back(recorded_.calls.size());
  }

  /// The event in a replay, which begins where the record does.
  Event event(Event event) const {
    const std::uint64_t before = before_[event.lane];
    return event.value > before ? Event{event.lane, event.value - before} : Event{};
  }
  /// The operation without body and accesses, and with what it cost.
  Op operation(const Op& op, const Cost& settled) const {
    Op again(op.name, op.cause, op.layer);
    again.kind = op.kind;
    again.cost = settled;
    for (const Event& after : op.after) again.after.push_back(event(after));
    return again;
  }

 private:
  SimCalls recorded_;
  std::vector<std::uint64_t> before_;
  std::uint32_t steps_left_ = 0;
};

}  // namespace tandem
