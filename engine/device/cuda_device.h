// `cuda`: a GPU. Device lanes are streams, copies between host and device use its copy engines, host lanes are CPU
// threads, and the clock is real.
//
// submit() launches an operation of a device lane (Op::launch) and does not wait for it. The stream waits for events of
// other streams, and for host lanes by a count in pinned memory. A host lane's thread runs bodies, and waits for
// streams by a word in pinned memory that they write. Operations of the control lane run inside submit(). Every kernel
// is its own launch: segments have no effect but their nesting is checked.
//
// Each host lane takes tasks of a bag inside one operation. The control thread takes tasks for the stream, one ahead of
// the running one, until none is left; the returned events cover the host's unfinished tasks. An error in the control
// thread stops only its own taking.
//
// Trace records have the shape of `emu`'s. Times of device lanes are those of marks in the streams around all that an
// operation puts there, to some tenths of a microsecond; gaps between its kernels count as its own, and so does
// recording the marks. They are on the control thread's clock to within some microseconds, the time that the host takes
// to see a stream end. Costs are the declared ones, unless a launch has them counted (LaunchContext::settle_by).
//
// Errors: submit() throws an InputError for an operation of a device lane without a launch, and what a launch throws;
// the stream is idle then. The next host_wait or drain() rethrows what a host body has thrown or a stream reports;
// until drain() no host body runs. submit, waits and drain belong to one thread, the control thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "engine/device/device.h"

namespace tandem {

struct CudaOptions {
  std::uint32_t host_worker_threads = 1;             // threads that kernels of the first host lane may use; at least 1
  std::size_t upload_bytes = std::size_t{16} << 20;  // of launches' arguments, to begin with
  /// Told, on the control thread, of each operation of a device lane once it is in its stream: for tests.
  std::function<void(const Op&)> launched = {};
};

/// InputError with the reason where there is no GPU (cuda_missing), and for zero threads.
std::unique_ptr<Device> make_cuda_device(const CudaOptions& options = {});

}  // namespace tandem
