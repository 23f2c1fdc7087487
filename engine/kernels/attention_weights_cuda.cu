#include <algorithm>

#include "engine/kernels/attention_weights.h"
#include "engine/kernels/attention_weights_kernels.cuh"
#include "engine/kernels/cuda/launch.cuh"

namespace tandem {

void blend_weights_cuda(const LaunchArray<WeightBlend>& blends, std::uint32_t count, std::uint32_t most, float keep,
                        float share, CudaStream stream) {
  gpu::Launcher launch(stream);
  for (std::uint32_t first = 0; first < count; first += gpu::kMaxGridRows) {
    launch(gpu::blend_weights_kernel,
           dim3(gpu::blocks_for(most, gpu::kWeightThreads), std::min(count - first, gpu::kMaxGridRows)),
           gpu::kWeightThreads, 0, blends, first, keep, share);
  }
}

void log_sum_exp_cuda(const LaunchArray<ScoreRow>& rows, std::uint32_t count, CudaStream stream) {
  gpu::Launcher launch(stream);
  launch(gpu::log_sum_exp_kernel, count, gpu::kWeightThreads, 0, rows);
}

}  // namespace tandem
