// `cuda`: a GPU. Device lanes are streams, copies between host and device are its copy engines', host lanes are threads
// of the CPU, and the clock is real.
//
// An operation of a device lane is launched (Op::launch) inside submit(), which does not wait for it: its stream waits
// for what it comes after, in other streams by events, on the CPU by a count in pinned memory. Operations of host lanes
// run their bodies on a thread of the lane, which looks at a word in pinned memory that the stream writes; those of the
// control lane run inside submit(). Every kernel is a launch of its own: segments have no effect but their nesting is
// checked.
//
// Of a bag each host lane takes tasks as one operation, the control thread takes them for the stream, one behind the
// one that runs, until nothing is left for it; what the host still has under way is behind the events that it returns.
// An error that it throws ends only its own taking.
//
// Trace records have the shape of `emu`'s. The times of device lanes are those of marks in the streams, before the
// first thing that an operation puts there and behind the last, some tenths of a microsecond fine: gaps between its
// kernels count as its own. They are on the control thread's clock to within the time that the host takes to see a
// stream end (some microseconds). Recording the marks is part of every time that is measured here. Costs are those that
// were declared, upper bounds among them, but for what a launch has had counted (LaunchContext::settle_by).
//
// Errors: an operation of a device lane without a launch is an InputError of submit(): whoever asked for it runs on
// `sim` and `emu` only. What a launch throws comes out of submit(); the stream is idle then. The exception of a host
// lane's body, and what a stream reports, is rethrown by the next host_wait, or by drain(); host bodies after it do not
// run until drain(). submit, waits and drain belong to one thread, the control thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "engine/device/device.h"

namespace tandem {

struct CudaOptions {
  std::uint32_t host_worker_threads = 1;             // threads that kernels of the first host lane may use; at least 1
  std::size_t upload_bytes = std::size_t{16} << 20;  // of launches' arguments, to begin with
  /// Told, on the control thread, of each operation of a device lane when all of it is in its stream: for tests, which
  /// count what that was.
  std::function<void(const Op&)> launched = {};
};

/// InputError with the reason where there is no GPU (cuda_missing), and for zero threads.
std::unique_ptr<Device> make_cuda_device(const CudaOptions& options = {});

}  // namespace tandem
