// What Fluxion's parts of a decode took on a simulated device, from its trace: saying what heads need, and the tasks
// that CPU and device share, beside the least time in which any schedule could have done them.
#pragma once

#include "engine/device/profile.h"
#include "engine/runtime/engine.h"

namespace tandem::eval {

/// Means over the steps after the first, sums over their layers. 0 where the method has no such parts.
struct TaskTimes {
  /// From the begin of a layer's estimate of the heads to the end of the choice of tasks, with whatever lies between:
  /// the way to the host, and the hand-off that ends the device's segment. The launch of the next one is not in it.
  double predict_ms = 0;
  double tasks_ms = 0;  // from a layer's first task to the end of its last
  /// The least of that: the linear program over both sides' times, where a task takes the time of its bytes at the
  /// CPU's rates or at the link's best one, or all bytes at the host memory's bandwidth, whichever is longer.
  double bound_ms = 0;
};

TaskTimes task_times(const Trace& trace, const HardwareProfile& hardware);

}  // namespace tandem::eval
