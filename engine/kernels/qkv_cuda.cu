#include "engine/common/error.h"
#include "engine/kernels/qkv_kernels.cuh"

namespace tandem {

void prepare_qkv_cuda(const float* qkv, const QkvShape& shape, const QkvWeights& weights,
                      const LaunchArray<QkvToken>& tokens, float* q, const KvPlaces& kv, std::uint32_t n,
                      CudaStream stream) {
  TANDEM_CHECK(shape.head_dim % 2 == 0 && shape.head_dim <= 2 * gpu::kMaxPairs, "A head of {} elements.",
               shape.head_dim);
  TANDEM_CHECK(weights.inverse_frequency != nullptr, "No rotary frequencies.");
  for (const MatrixView& norm : {weights.q_norm, weights.k_norm})
    TANDEM_CHECK(!norm || norm.cols == shape.head_dim, "A norm of {} for heads of {}.", norm.cols, shape.head_dim);
  gpu::Launcher launch(stream);
  launch(gpu::prepare_qkv_kernel, dim3(n, gpu::blocks_for(shape.q_heads + 2 * shape.kv_heads, gpu::kQkvWarps)),
         gpu::kQkvWarps * gpu::kWarp, 0, qkv, shape, weights, tokens, q, kv);
}

}  // namespace tandem
