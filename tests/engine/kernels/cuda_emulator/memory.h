// What of the emulated device's memory and of pinned memory is allocated (engine/device/cuda/runtime.h's).
#pragma once

#include <cstddef>
#include <optional>

#include "engine/device/cuda/runtime.h"

namespace tandem::cuda_emulator {

struct Allocation {
  const char* begin;
  std::size_t bytes;
  CudaPlace place;
};
/// The one with the byte at `data`; nothing where a GPU does not reach it.
std::optional<Allocation> allocation_of(const void* data);
/// Of all allocations there.
std::size_t allocated_bytes(CudaPlace place);

}  // namespace tandem::cuda_emulator
