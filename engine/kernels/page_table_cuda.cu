#include "engine/common/error.h"
#include "engine/kernels/page_table_kernels.cuh"

namespace tandem {

void place_slots_cuda(const LaunchArray<std::uint32_t>& slots, std::uint32_t layers, std::uint32_t first,
                      std::uint32_t count, std::uint32_t capacity, std::uint32_t* table, CudaStream stream) {
  TANDEM_CHECK(first + count <= capacity, "Slots [{}, {}) in a table of {}.", first, first + count, capacity);
  if (count == 0) return;
  gpu::Launcher launch(stream);
  launch(gpu::place_slots_kernel, layers, gpu::kTableThreads, 0, slots, first, count, capacity, table);
}

}  // namespace tandem
