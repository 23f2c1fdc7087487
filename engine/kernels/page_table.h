// A sequence's page table in device memory, from which kernels list pages: who knows tokens need not know slots.
#pragma once

#include <cstdint>

#include "engine/device/cuda/launch_array.h"
#include "engine/device/cuda/runtime.h"  // CudaStream

namespace tandem {

/// table[layer][first + i] = slots[layer][i] for i < count, of every layer. first + count <= capacity.
void place_slots_cuda(const LaunchArray<std::uint32_t>& slots /*[layers][count]*/, std::uint32_t layers,
                      std::uint32_t first, std::uint32_t count, std::uint32_t capacity,
                      std::uint32_t* table /*[layers][capacity]*/, CudaStream stream);

}  // namespace tandem
