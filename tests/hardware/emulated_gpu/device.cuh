// The emulated twin of hardware/probe/device.cuh, which includes it: starting a kernel, and the device's clock.
#pragma once

#include <chrono>
#include <functional>
#include <thread>
#include <tuple>

#include "hardware/probe/cuda_common.h"
#include "tests/engine/kernels/cuda_emulator/language.cuh"

namespace tandem::probe {

/// Runs `thread` for every thread of the grid once the stream is there. cudaErrorInvalidConfiguration for a grid that
/// no device takes.
cudaError_t launch_emulated(const void* kernel, unsigned blocks, unsigned threads, cudaStream_t stream,
                            std::function<void()> thread);

template <class... Parameters, class... Arguments>
void launch(const char* what, void (*kernel)(Parameters...), unsigned blocks, unsigned threads, cudaStream_t stream,
            const Arguments&... arguments) {
  const std::tuple<Parameters...> parameters(static_cast<Parameters>(arguments)...);
  cuda_check(launch_emulated(reinterpret_cast<const void*>(kernel), blocks, threads, stream,
                             [=] { std::apply(kernel, parameters); }),
             what);
}

/// The other threads of the block go on meanwhile: whoever asks the time of a device waits for something.
inline unsigned long long nanoseconds_now() {
  cuda_emulator::let_others_run();
  std::this_thread::yield();
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<unsigned long long>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

}  // namespace tandem::probe
