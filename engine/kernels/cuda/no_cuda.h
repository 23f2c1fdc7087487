// What every CUDA twin does in a build without CUDA.
#pragma once

#include "engine/device/cuda/runtime.h"

namespace tandem {

/// Throws InputError with cuda_missing().
[[noreturn]] inline void refuse_without_cuda() {
  throw InputError(cuda_missing());
}

}  // namespace tandem
