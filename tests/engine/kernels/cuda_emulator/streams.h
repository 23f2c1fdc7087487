// The emulator's streams: threads that do what was put into them, one thing after the other and as late as they like,
// so that whatever is read too early, or overwritten too early, shows as it would on a GPU. Kernels of several streams
// take turns. The default stream does everything at once.
#pragma once

#include <functional>

#include "engine/device/cuda/runtime.h"

namespace tandem::cuda_emulator {

/// What `work` throws is rethrown by every later wait for the stream, and nothing behind it runs, as on a GPU. Of the
/// default stream it comes out at once.
void enqueue(CudaStream stream, std::function<void()> work);

/// Every stream has done what was put into it: freeing memory waits for that, as on a GPU.
void settle_all();

}  // namespace tandem::cuda_emulator
