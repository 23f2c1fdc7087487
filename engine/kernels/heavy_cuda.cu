#include <algorithm>

#include "engine/kernels/cuda/launch.cuh"
#include "engine/kernels/heavy.h"
#include "engine/kernels/heavy_kernels.cuh"

namespace tandem {

void keep_heavy_cuda(const HeavyCompetition* sets, std::uint32_t count, std::uint32_t most, const KvPages& kv,
                     CudaStream stream) {
  gpu::Launcher launch(stream);
  launch(gpu::choose_heavy_kernel, count, gpu::kSelectThreads, 0, sets);
  for (std::uint32_t first = 0; first < count; first += gpu::kMaxGridRows)
    launch(gpu::move_heavy_kernel,
           dim3(gpu::blocks_for(most, gpu::kMoveThreads / gpu::kWarp), std::min(count - first, gpu::kMaxGridRows)),
           gpu::kMoveThreads, 0, sets, first, kv);
}

void update_heavy_cuda(const HeavyStep* sets, std::uint32_t count, std::uint32_t group, const KvPages& kv,
                       CudaStream stream) {
  gpu::Launcher launch(stream);
  launch(gpu::update_heavy_kernel, count, gpu::kSelectThreads, 0, sets, group, kv);
}

}  // namespace tandem
