#include "engine/runtime/predicted_queries.h"

namespace tandem {

QueryRef PredictedQueries::predict(const LayerContext& context, std::uint32_t layer, std::uint32_t norm_of) {
  const ModelShape& s = forward_.shape();
  const std::size_t bytes = std::size_t{forward_.max_batch()} * s.q_heads * s.head_dim * sizeof(float);
  for (DeviceBuffer& half : halves_) {
    if (!half) half = device_.allocate_device(bytes, "predicted query");
  }
  std::vector<std::uint32_t> positions;
  positions.reserve(context.batch.size());
  for (const SequenceState* sequence : context.batch) positions.push_back(sequence->tokens - 1);
  return {layer, true, forward_.predict_query(layer, norm_of, std::move(positions), halves_[layer % 2])};
}

}  // namespace tandem
