// Work of the host in a stream, in its order: what a kernel would do, for tests of who waits for whom.
#pragma once

#include <functional>

#include "engine/device/cuda/runtime.h"

namespace tandem {

/// On a GPU by cudaLaunchHostFunc, on the emulated one by its thread. `work` does not throw there.
void in_stream(CudaStream stream, std::function<void()> work);

}  // namespace tandem
