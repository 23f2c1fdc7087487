#include "engine/common/error.h"
#include "tests/engine/device/in_stream.h"

namespace tandem {

void in_stream(CudaStream, std::function<void()>) {
  throw InputError(cuda_missing());
}

}  // namespace tandem
