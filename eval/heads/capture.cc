#include "eval/heads/capture.h"

#include <algorithm>
#include <exception>

namespace tandem::eval {

HeadCapture::HeadCapture(const ModelShape& shape, std::uint32_t tokens, std::uint32_t first_query)
    : shape_(shape), tokens_(tokens), first_query_(first_query), layers_(shape.layers) {
  const std::size_t kv = std::size_t{shape.kv_heads} * tokens * shape.head_dim;
  for (Layer& layer : layers_) {
    layer.keys.resize(kv);
    layer.values.resize(kv);
    layer.queries.resize(std::size_t{queries()} * shape.q_heads * shape.head_dim);
    layer.inputs.resize(std::size_t{queries()} * shape.hidden);
  }
}

void HeadCapture::qkv_done(const QkvRows& rows) {
  Layer& layer = layers_[rows.layer];
  const std::size_t dim = shape_.head_dim, q_width = shape_.q_heads * dim;
  for (std::size_t row = 0; row < rows.positions.size(); ++row) {
    const std::size_t position = rows.positions[row];
    for (std::size_t head = 0; head < shape_.kv_heads; ++head) {
      const std::size_t from = (row * shape_.kv_heads + head) * dim, to = (head * tokens_ + position) * dim;
      std::copy_n(rows.k + from, dim, layer.keys.data() + to);
      std::copy_n(rows.v + from, dim, layer.values.data() + to);
    }
    if (position < first_query_) continue;
    const std::size_t query = position - first_query_;
    std::copy_n(rows.q + row * q_width, q_width, layer.queries.data() + query * q_width);
    std::copy_n(rows.x + row * shape_.hidden, shape_.hidden, layer.inputs.data() + query * shape_.hidden);
  }
}

const float* HeadCapture::keys(std::uint32_t layer, std::uint32_t kv_head) const {
  return layers_[layer].keys.data() + std::size_t{kv_head} * tokens_ * shape_.head_dim;
}
const float* HeadCapture::values(std::uint32_t layer, std::uint32_t kv_head) const {
  return layers_[layer].values.data() + std::size_t{kv_head} * tokens_ * shape_.head_dim;
}
const float* HeadCapture::query(std::uint32_t layer, std::uint32_t query) const {
  return layers_[layer].queries.data() + std::size_t{query} * shape_.q_heads * shape_.head_dim;
}
const float* HeadCapture::inputs(std::uint32_t layer) const {
  return layers_[layer].inputs.data();
}

HeadCapture captured_prompt(Engine& engine, const std::vector<std::int32_t>& prompt, std::uint32_t first_query) {
  HeadCapture capture(engine.shape(), static_cast<std::uint32_t>(prompt.size() - 1), first_query);
  {
    const Observation observation(engine, capture);
    engine.release(*engine.prefill(prompt));
  }
  return capture;
}

Observation::~Observation() {
  try {
    engine_.observe(nullptr);
  } catch (const std::exception&) {
    // Thrown by the work that failed, which has been reported already.
  }
}

}  // namespace tandem::eval
