// `sim`: bodies run for real on the calling thread, time is virtual. Durations come from a hardware profile, operations
// that run at the same time share DRAM, HBM and the link, and every pair of conflicting accesses must be ordered.
//
// Bodies run inside submit(), in submission order: events name earlier submissions only. So costs and accesses are
// settled before time is computed. Time passes only in host_wait, end_step, drain and in control-lane operations that
// wait for events. The same costs and order give the same nanoseconds on every machine.
//
// Control time (the control thread is a lane like the others: launching runs ahead of the device until a host wait):
//   an operation of a device lane           launch_ns for each of its kernels, and operation_ns; a record "launch"
//   the first one of a segment              segment_launch_ns, a record named like the segment; the others nothing.
//                                           Where that is 0 there are no graphs, and all are launched
//   an operation of host workers            submit_ns, a record "submit"
//   an operation of the control lane        its own duration (fixed_ns and its cost with one thread, not shared)
// No operation starts before it is submitted, inside a segment either. A host wait inside a segment splits it: the next
// device operation pays for another launch, as a graph would.
//
// Hand-off latency is added to edges from a device lane (compute or copy) to host workers or the control thread
// (device_to_host_ns), from host workers to a device lane (host_to_device_ns), and between device lanes (stream_ns). A
// host wait for host workers costs nothing extra: submit_ns pays for waking both sides.
//
// Errors: as on `emu`; HazardError, undeclared accesses and wrong events are thrown by submit itself.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "engine/device/device.h"
#include "engine/device/hazard.h"
#include "engine/device/profile.h"

namespace tandem {

struct SimOptions {
  /// Run only the cost-only parts of bodies: times and bytes of shapes whose tensors nobody could compute here.
  bool shapes_only = false;
  /// Whether conflicting accesses must be ordered. Without, for schedules of a kind that was checked: faster.
  bool checked = true;
  std::vector<ScheduleOp>* schedule = nullptr;  // gets everything that is submitted: for tests
};

/// The host's workers have all threads of the profile. Device memory is limited to profile.device.memory_gb:
/// allocate_device throws RunError beyond it.
std::unique_ptr<Device> make_sim_device(HardwareProfile profile, SimOptions options = {});

class SimDevice;
/// Repeats a recorded call, without its body and accesses, on another simulated device.
using SimCall = std::function<void(SimDevice&)>;

/// The calls of one decode, for replay().
struct SimCalls {
  std::vector<SimCall> calls;
  std::vector<std::size_t> step_ends;  // of each decode step, how many calls there are up to its end
  SimOptions options;
  /// Whether lanes competed for tasks. Times then decided who took them, so that a replay is wrong on another profile.
  bool times_decide = false;
};

/// Records the calls of `device` from now on, up to the end of `steps` decode steps. Every lane must be drained.
void record_calls(Device& device, std::uint32_t steps);
SimCalls take_calls(Device& device);  // ends the recording

/// The traces of the first `steps` recorded decode steps on another profile, one per drain. Choices, and who took which
/// task, stay as recorded; the times are those of a run there where times decide nothing.
std::vector<Trace> replay(const SimCalls& calls, const HardwareProfile& profile, std::size_t steps = SIZE_MAX);

/// Names of lanes and buffers for error sentences; valid as long as the device.
const ScheduleNames& schedule_names(Device& device);

}  // namespace tandem
