// What the forward pass's operations launch on a GPU. Products read their input in the type of the weights, so norms
// and activations round to it; the residual stream, queries and logits are f32, as on the CPU.
#include <algorithm>

#include "engine/common/error.h"
#include "engine/device/copy_list.h"
#include "engine/kernels/attention.h"
#include "engine/kernels/convert.h"
#include "engine/kernels/pointwise.h"
#include "engine/runtime/forward.h"
#include "engine/runtime/launched_attention.h"

namespace tandem {
namespace {

constexpr std::size_t kScratchAlignment =
    16;  // of what is cut out of the scratch buffer: vector loads of kernels, cuBLASLt

/// Cuts a buffer into pieces, one behind the other.
class Cutter {
 public:
  explicit Cutter(char* at) : at_(at) {}
  template <class T = void>
  T* take(std::size_t bytes) {
    char* const piece = at_;
    at_ += (bytes + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment;
    return reinterpret_cast<T*>(piece);
  }

 private:
  char* at_;
};

}  // namespace

std::size_t Forward::scratch_floats(std::size_t rows) const {
  const std::size_t hidden = shape_.hidden, inner = model_.config.intermediate;
  const std::size_t q_width = std::size_t{shape_.q_heads} * shape_.head_dim;
  const std::size_t kv_width = std::size_t{shape_.kv_heads} * shape_.head_dim;
  if (!device_.launches()) return rows * std::max(hidden + 2 * kv_width, 2 * hidden + 2 * inner);
  // launch_qkv: the norm, the product; launch_finish_layer: attention, norm, gate and up, their activation.
  constexpr std::size_t kPieces = 4, kFloats = kScratchAlignment / sizeof(float);
  return rows * std::max(hidden + q_width + 2 * kv_width, q_width + hidden + 3 * inner) + kPieces * kFloats;
}

/// x under a norm, as the product with `next` wants it.
void Forward::launch_norm(LaunchContext& ctx, const PlacedMatrix& norm, const PlacedMatrix& next, std::uint32_t rows,
                          void* normed) const {
  rms_norm_cuda(ctx.read<float>(x_), weights_.view(ctx, norm), model_.config.rms_eps, normed, next.type, rows,
                shape_.hidden, ctx.stream());
}

void Forward::launch_embed(LaunchContext& ctx, const std::vector<std::uint32_t>& source) const {
  const auto rows = static_cast<std::uint32_t>(source.size());
  const std::int32_t* tokens = ctx.read<std::int32_t>(tokens_);
  bool in_place = true;
  for (std::uint32_t row = 0; row < rows; ++row) in_place = in_place && source[row] == row;
  if (!in_place) {  // sequences before these have ended
    auto* const chosen = ctx.scratch<std::int32_t>(rows);
    CopyList list;
    for (std::uint32_t row = 0; row < rows; ++row)
      list.add(reinterpret_cast<char*>(chosen), row * sizeof(std::int32_t), reinterpret_cast<const char*>(tokens),
               source[row] * sizeof(std::int32_t), sizeof(std::int32_t));
    list.copy(CopyWay::within_device, ctx.stream());
    tokens = chosen;
  }
  embed_cuda(weights_.view(ctx, weights_.embedding()), tokens, ctx.write<float>(x_), rows, ctx.stream());
}

QkvWeights Forward::qkv_weights(const LaunchContext& ctx, std::uint32_t layer) const {
  const DeviceWeights::Layer& w = weights_.layer(layer);
  QkvWeights weights;
  weights.bias = static_cast<const float*>(weights_.view(ctx, w.qkv_bias).data);
  weights.q_norm = weights_.view(ctx, w.q_norm);
  weights.k_norm = weights_.view(ctx, w.k_norm);
  weights.eps = model_.config.rms_eps;
  weights.inverse_frequency = weights_.inverse_frequency(ctx);
  weights.scale = rope_.scale;
  return weights;
}

/// The first rows of what makes queries, keys and values make the queries.
void Forward::launch_predicted_query(LaunchContext& ctx, std::uint32_t layer, std::uint32_t norm_of,
                                     const std::vector<std::uint32_t>& positions, float* q) {
  const auto rows = static_cast<std::uint32_t>(positions.size());
  const DeviceWeights::Layer& w = weights_.layer(layer);
  const QkvShape shape{shape_.q_heads, 0, shape_.head_dim};
  MatrixView product = weights_.view(ctx, w.qkv);
  product.rows = shape.columns();
  Cutter scratch(ctx.write<char>(scratch_));
  void* const normed = scratch.take(std::size_t{rows} * shape_.hidden * size_of(product.type));
  auto* const raw = scratch.take<float>(std::size_t{rows} * shape.columns() * sizeof(float));
  launch_norm(ctx, weights_.layer(norm_of).input_norm, w.qkv, rows, normed);
  (*linear_)(normed, product, nullptr, raw, DType::f32, rows, ctx.stream());
  std::vector<QkvToken> tokens(rows);
  for (std::uint32_t row = 0; row < rows; ++row) tokens[row].position = positions[row];
  prepare_qkv_cuda(raw, shape, qkv_weights(ctx, layer), ctx.pass(tokens), q, {}, rows, ctx.stream());
}

void Forward::launch_qkv(LaunchContext& ctx, std::uint32_t layer, const std::vector<std::uint32_t>& positions,
                         const std::vector<KvTarget>& targets, const KeepQueries& keep, std::uint32_t kept) {
  const auto rows = static_cast<std::uint32_t>(positions.size());
  const DeviceWeights::Layer& w = weights_.layer(layer);
  const ModelConfig& c = model_.config;
  const KvShape& kv = kv_.shape();
  const QkvShape shape{c.q_heads, c.kv_heads, c.head_dim};
  Cutter scratch(ctx.write<char>(scratch_));
  void* const normed = scratch.take(std::size_t{rows} * c.hidden * size_of(w.qkv.type));
  auto* const qkv = scratch.take<float>(std::size_t{rows} * shape.columns() * sizeof(float));
  launch_norm(ctx, w.input_norm, w.qkv, rows, normed);
  (*linear_)(normed, weights_.view(ctx, w.qkv), nullptr, qkv, DType::f32, rows, ctx.stream());

  std::vector<QkvToken> tokens(rows);
  for (std::uint32_t row = 0; row < rows; ++row)
    tokens[row] = {kv_.k_offset(targets[row].slot, 0) + targets[row].offset * kv.vector_bytes(), positions[row]};
  char* const pages = ctx.write<char>(kv_.device_buffer());
  const KvPlaces to{pages, pages + kPageTokens * kv.vector_bytes(), kv.type, kv.page_bytes()};
  auto* const q = ctx.write<float>(q_);
  prepare_qkv_cuda(qkv, shape, qkv_weights(ctx, layer), ctx.pass(tokens), q, to, rows, ctx.stream());
  if (shown_) {
    std::vector<QkvToken> beside;
    const KvPlaces places = shown_->places(ctx, positions, beside);
    prepare_qkv_cuda(qkv, shape, qkv_weights(ctx, layer), ctx.pass(beside), q, places, rows, ctx.stream());
  }
  const std::size_t width = std::size_t{c.q_heads} * c.head_dim;
  for (std::uint32_t row = rows - kept; row < rows;) {  // runs that do not pass the end of the room
    const std::uint32_t begin = positions[row] % keep.to.kept, count = std::min(rows - row, keep.to.kept - begin);
    cuda_copy(ctx.write<float>(keep.to.values) + (std::size_t{layer} * keep.to.kept + begin) * width, q + row * width,
              count * width * sizeof(float), ctx.stream());
    row += count;
  }
}

void Forward::launch_prefill_attention(LaunchContext& ctx, std::uint32_t first, std::uint32_t rows,
                                       const std::vector<std::uint32_t>& slots) const {
  PrefillChunk chunk;
  chunk.q = ctx.read<float>(q_);
  chunk.kv = device_pages(ctx, kv_);
  chunk.slots = ctx.upload(slots);
  chunk.first_position = first;
  chunk.n = rows;
  chunk.q_heads = shape_.q_heads;
  chunk.out = ctx.write<float>(attention_);
  prefill_attention_cuda(chunk, ctx.stream());
}

void Forward::launch_finish_layer(LaunchContext& ctx, std::uint32_t layer, std::uint32_t rows) {
  const DeviceWeights::Layer& w = weights_.layer(layer);
  const ModelConfig& c = model_.config;
  const std::size_t width = std::size_t{c.q_heads} * c.head_dim;
  Cutter scratch(ctx.write<char>(scratch_));
  const void* attended = ctx.read<float>(attention_);
  if (w.o.type != DType::f32) {
    void* const rounded = scratch.take(rows * width * size_of(w.o.type));
    convert_cuda(attended, DType::f32, rounded, w.o.type, rows * width, ctx.stream());
    attended = rounded;
  }
  void* const normed = scratch.take(std::size_t{rows} * c.hidden * size_of(w.gate_up.type));
  auto* const gate_up = scratch.take<float>(std::size_t{2} * rows * c.intermediate * sizeof(float));
  void* const activated = scratch.take(std::size_t{rows} * c.intermediate * size_of(w.down.type));
  auto* const x = ctx.write<float>(x_);
  linear_->add(attended, weights_.view(ctx, w.o), x, rows, ctx.stream());
  rms_norm_cuda(x, weights_.view(ctx, w.post_norm), c.rms_eps, normed, w.gate_up.type, rows, c.hidden, ctx.stream());
  (*linear_)(normed, weights_.view(ctx, w.gate_up), nullptr, gate_up, DType::f32, rows, ctx.stream());
  swiglu_cuda(gate_up, gate_up + c.intermediate, std::size_t{2} * c.intermediate, activated, w.down.type, rows,
              c.intermediate, ctx.stream());
  linear_->add(activated, weights_.view(ctx, w.down), x, rows, ctx.stream());
}

/// logits() of rows [first, first + rows) of what launch_norm left in the scratch buffer.
void Forward::launch_logits(LaunchContext& ctx, std::uint32_t first, std::uint32_t rows) {
  const PlacedMatrix& head = weights_.lm_head();
  const char* const normed = ctx.read<char>(scratch_) + std::size_t{first} * shape_.hidden * size_of(head.type);
  (*linear_)(normed, weights_.view(ctx, head), nullptr, ctx.write<float>(logits_), DType::f32, rows, ctx.stream());
}

void Forward::launch_sample(LaunchContext& ctx, std::uint32_t rows, const std::vector<std::int32_t>& forced,
                            const std::vector<Draw>& draws) {
  const std::uint32_t vocab = model_.config.vocab;
  launch_norm(ctx, weights_.final_norm(), weights_.lm_head(), rows, ctx.write<char>(scratch_));
  launch_logits(ctx, 0, rows);
  const float* const logits = ctx.read<float>(logits_);
  auto* const tokens = ctx.write<std::int32_t>(tokens_);
  const bool forces = !forced.empty();
  if (forces) cuda_copy(tokens, ctx.upload(forced), rows * sizeof(std::int32_t), ctx.stream());
  choose_cuda(logits, rows, vocab, forces ? tokens : nullptr, ctx.write<TopTwo>(top_), forces ? nullptr : tokens,
              forces ? ctx.write<double>(log_probability_) : nullptr, ctx.write<char>(choose_scratch_), ctx.stream());
  if (draws.empty()) return;
  std::vector<SampleRow> sampled(rows);
  for (std::uint32_t row = 0; row < rows; ++row)
    sampled[row] = {logits + std::size_t{row} * vocab, draws[row].how, draws[row].position, tokens + row};
  sample_tokens_cuda(ctx.pass(sampled), rows, vocab, ctx.stream());
}

void Forward::launch_all_logits(LaunchContext& ctx, std::uint32_t rows, float* out) {
  const std::size_t vocab = model_.config.vocab;
  launch_norm(ctx, weights_.final_norm(), weights_.lm_head(), rows, ctx.write<char>(scratch_));
  for (std::uint32_t first = 0; first < rows; first += max_batch_) {  // as many as there is room for logits
    const std::uint32_t count = std::min(max_batch_, rows - first);
    launch_logits(ctx, first, count);
    cuda_copy(out + first * vocab, ctx.read<float>(logits_), count * vocab * sizeof(float), ctx.stream());
  }
}

}  // namespace tandem
