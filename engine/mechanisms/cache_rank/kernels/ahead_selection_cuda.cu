#include "engine/mechanisms/cache_rank/kernels/ahead_selection.h"

namespace tandem {

void select_ahead_cuda(const PredictionRule& rule, const DeviceRope& rope, const AheadBatch& batch, CudaStream stream) {
  const std::uint32_t q_heads = batch.group * batch.kv.kv_heads;
  predict_next_cuda(rule, rope, batch.windows, batch.rows, q_heads, batch.kv.dim, batch.weights, stream);
  choose_tokens_cuda(batch.queries, batch.choices, batch.rows, batch.group, batch.kv, batch.lists, batch.scores,
                     stream);
  pack_tokens_cuda(batch.packs, batch.rows, batch.most, batch.kv, stream);
}

}  // namespace tandem
