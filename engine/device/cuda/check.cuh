// Results of the CUDA runtime as exceptions. nvcc only.
#pragma once

#include <cuda_runtime.h>
#include <fmt/format.h>

#include "engine/device/cuda/runtime.h"

namespace tandem::gpu {

/// CudaError unless the call succeeded. `doing`: "copying to the device". The failure is then no longer the thread's
/// last error, which the next launch would report as its own.
inline void check_cuda(cudaError_t result, const char* doing) {
  if (result == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());
  const std::string text =
      fmt::format("CUDA failed while {}: {} ({}).", doing, cudaGetErrorString(result), cudaGetErrorName(result));
  if (result == cudaErrorMemoryAllocation) throw CudaNoRoom(text);
  throw CudaError(text);
}

}  // namespace tandem::gpu
