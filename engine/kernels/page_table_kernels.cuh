// Slots into a page table.
#pragma once

#include "engine/kernels/cuda/launch.cuh"
#include "engine/kernels/page_table.h"

namespace tandem::gpu {

constexpr unsigned kTableThreads = 128;

/// Grid: {layers}.
inline __global__ void __launch_bounds__(kTableThreads)
    place_slots_kernel(const __grid_constant__ LaunchArray<std::uint32_t> slots, std::uint32_t first,
                       std::uint32_t count, std::uint32_t capacity, std::uint32_t* table) {
  const std::size_t layer = blockIdx.x;
  for (std::uint32_t i = threadIdx.x; i < count; i += kTableThreads)
    table[layer * capacity + first + i] = slots[layer * count + i];
}

}  // namespace tandem::gpu
