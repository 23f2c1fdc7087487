#include <utility>

#include "tests/engine/device/in_stream.h"
#include "tests/engine/kernels/cuda_emulator/streams.h"

namespace tandem {

void in_stream(CudaStream stream, std::function<void()> work) {
  cuda_emulator::enqueue(stream, std::move(work));
}

}  // namespace tandem
