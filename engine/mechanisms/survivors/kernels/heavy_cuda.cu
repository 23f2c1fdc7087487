#include <algorithm>

#include "engine/common/error.h"
#include "engine/kernels/cuda/launch.cuh"
#include "engine/mechanisms/survivors/kernels/heavy.h"
#include "engine/mechanisms/survivors/kernels/heavy_kernels.cuh"

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

void update_heavy_cuda(const LaunchArray<HeavyStep>& sets, std::uint32_t count, std::uint32_t group, const KvPages& kv,
                       CudaStream stream) {
  gpu::Launcher launch(stream);
  launch(gpu::update_heavy_kernel, count, gpu::kSelectThreads, 0, sets, group, kv);
}

void update_heavy_alike_cuda(const LaunchArray<HeavyStep>& sets, std::uint32_t count, std::uint32_t kv_heads,
                             std::uint32_t most, std::uint32_t group, const KvPages& kv, CudaStream stream) {
  TANDEM_CHECK(kv_heads >= 1, "Sets of no KV heads.");
  gpu::Launcher launch(stream);
  const std::uint32_t all = count * kv_heads;
  for (std::uint32_t first = 0; first < all; first += gpu::kMaxGridRows)
    launch(gpu::weigh_step_kernel,
           dim3(gpu::blocks_for(most, gpu::kSelectThreads), std::min(all - first, gpu::kMaxGridRows)),
           gpu::kSelectThreads, 0, sets, first, group);
  launch(gpu::place_alike_kernel, count, gpu::kSelectThreads, 0, sets, kv_heads, group, kv);
}

}  // namespace tandem
