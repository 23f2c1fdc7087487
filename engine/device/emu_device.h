// `emu`: one thread per lane, real time. For thread sanitizers, and for wall-clock runs on CPUs alone. All buffers are
// host memory; copies really copy. Instead of the hazard checker of `sim`, a thread sanitizer looks at the bodies.
//
// A lane runs its operations in order, each after its events; operations of the control lane run inside submit(). Trace
// records have the shape of `sim`: "launch" or "submit" with the time that submit() took, and zero-length host waits.
// Segments have no effect but their nesting is checked.
//
// Errors: host_wait rethrows a body's exception for its event or a later one of the lane. Operations that depend on a
// failed one complete without running their bodies, so nothing hangs. drain() waits for all lanes, clears the errors,
// and throws one that no wait has reported. The destructor abandons what has not started. submit, waits and drain
// belong to one thread, the control thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/device/device.h"

namespace tandem {

struct EmuOptions {
  std::uint32_t host_worker_threads = 1;  // threads that kernels of the host lane may use; at least 1
  // CPUs of the device's compute lanes, and of the host's workers and all copies. Empty: any. The control thread is the
  // caller's. Kernels that use a pool run on its threads, too: with a pool of one thread each lane stays on its CPUs.
  std::vector<int> device_cpus = {}, host_cpus = {};
};

/// InputError for zero threads, and for CPUs that the process may not use.
std::unique_ptr<Device> make_emu_device(EmuOptions options = {});

/// "AMD EPYC 7V13 64-Core Processor", or "unknown CPU".
std::string cpu_model_name();

}  // namespace tandem
