// A layer's operations of the forward pass, on the CPU and as a GPU launches them. There, products read their input in
// the type of the weights, so norms and activations round to it; the residual stream, queries and logits are f32, as on
// the CPU.
#include <algorithm>
#include <functional>

#include "engine/device/copy_list.h"
#include "engine/device/launch_context.h"
#include "engine/kernels/attention.h"
#include "engine/kernels/convert.h"
#include "engine/kernels/linear.h"
#include "engine/kernels/pointwise.h"
#include "engine/runtime/forward.h"
#include "engine/runtime/launched_attention.h"
#include "engine/runtime/layer_costs.h"

namespace tandem {
namespace {

/// `bias`: a vector in f32, or an empty view.
void project(Forward::Phase phase, DType precision, ThreadPool& pool, const float* x, const MatrixView& w,
             const MatrixView& bias, float* y, std::uint32_t rows) {
  const auto* b = static_cast<const float*>(bias.data);
  if (phase == Forward::Phase::prefill) {
    (precision == DType::bf16 ? linear_prefill_bf16 : linear_prefill)(pool, x, w, b, y, rows);
  } else {
    linear(pool, x, w, b, y, rows);
  }
}

/// Calls part(first, last) for parts of the rows, on all threads where a chunk of a prompt is worth waking them. For
/// what treats each row alone: a part's rows stay in its core's cache from one step to the next.
void for_rows(ThreadPool& pool, std::uint32_t rows, const std::function<void(std::uint32_t, std::uint32_t)>& part) {
  constexpr std::uint32_t kRows = 32;
  if (rows <= kRows) return part(0, rows);
  pool.parallel_for((rows + kRows - 1) / kRows, [&](std::size_t i) {
    const auto first = static_cast<std::uint32_t>(i) * kRows;
    part(first, std::min(first + kRows, rows));
  });
}

// Pieces of the scratch buffer begin at multiples of this: for vector loads of kernels and for cuBLASLt.
constexpr std::size_t kScratchAlignment = 16;

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

void make_query(Forward::Phase phase, DType precision, const Model& model, const RopeTable& table, ThreadPool& pool,
                std::uint32_t layer, const float* normed, std::span<const std::uint32_t> positions, float* q) {
  const LayerWeights& weights = model.weights.layers[layer];
  const ModelConfig& c = model.config;
  const auto rows = static_cast<std::uint32_t>(positions.size());
  project(phase, precision, pool, normed, weights.q, weights.q_bias, q, rows);
  for_rows(pool, rows, [&](std::uint32_t first, std::uint32_t last) {
    float* from = q + std::size_t{first} * c.q_heads * c.head_dim;
    if (c.qk_norm) rms_norm(from, weights.q_norm, c.rms_eps, from, (last - first) * c.q_heads, c.head_dim);
    rope(from, positions.data() + first, table, last - first, c.q_heads);
  });
}

std::size_t Forward::scratch_floats(std::size_t rows) const {
  const std::size_t hidden = shape_.hidden, inner = model_.config.intermediate;
  const std::size_t q_width = std::size_t{shape_.q_heads} * shape_.head_dim;
  const std::size_t kv_width = std::size_t{shape_.kv_heads} * shape_.head_dim;
  if (!device_.is_gpu()) return rows * std::max(hidden + 2 * kv_width, 2 * hidden + 2 * inner);
  // qkv: the norm, the product; finish_layer: attention, norm, gate and up, their activation.
  constexpr std::size_t kPieces = 4, kFloats = kScratchAlignment / sizeof(float);
  return rows * std::max(hidden + q_width + 2 * kv_width, q_width + hidden + 3 * inner) + kPieces * kFloats;
}

Cost Forward::weights_cost(Phase phase, std::initializer_list<MatrixView> weights, std::uint32_t rows) const {
  Cost cost;
  cost.work = phase == Phase::prefill ? Work::gemm : Work::weights;
  for (const MatrixView& w : weights) add_product(cost, rows, w.rows, w.cols, w.bytes());
  return cost;
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

Event Forward::qkv(Phase phase, std::uint32_t layer, std::vector<std::uint32_t> positions,
                   std::vector<KvTarget> targets, std::vector<Event> after, const KeepQueries& keep) {
  const auto rows = static_cast<std::uint32_t>(positions.size());
  const std::uint32_t kept = keep.to.values ? rows - std::min(rows, keep.first_row) : 0;
  const LayerWeights& w = model_.weights.layers[layer];
  Op op("qkv", Cause::none, layer);
  op.cost = weights_cost(phase, {w.q, w.k, w.v}, rows);
  op.cost.kernels = 3;  // norm; one product for Q, K and V; QK-norm, RoPE and the pages
  op.cost.hbm += w.q_bias.bytes() + w.k_bias.bytes() + w.v_bias.bytes();
  op.access = {x_.reads(0, rows), q_.writes(0, rows), scratch_.writes(), weights_.reads_layer(layer)};
  for (std::uint32_t row = 0; row < rows;) {  // rows of one prefill chunk share and continue slots
    std::uint32_t first = targets[row].slot, last = first;
    while (row < rows && (targets[row].slot == last || targets[row].slot == last + 1)) last = targets[row++].slot;
    op.access.push_back(kv_.slot_access(Tier::device, first, last - first + 1, Range{0, shape_.kv_heads}, true));
  }
  if (kept > 0) {
    op.cost.hbm += std::uint64_t{kept} * shape_.q_heads * shape_.head_dim * sizeof(float);
    op.access.push_back(keep.to.values.writes(layer, layer + 1));
  }
  if (shown_) op.access.push_back(shown_->kv().writes());
  op.after = std::move(after);
  op.launch = [&](LaunchContext& ctx) {
    const DeviceWeights::Layer& placed = weights_.layer(layer);
    const ModelConfig& c = model_.config;
    const KvShape& kv = kv_.shape();
    const QkvShape shape{c.q_heads, c.kv_heads, c.head_dim};
    Cutter scratch(ctx.write<char>(scratch_));
    void* const normed = scratch.take(std::size_t{rows} * c.hidden * size_of(placed.qkv.type));
    auto* const qkv = scratch.take<float>(std::size_t{rows} * shape.columns() * sizeof(float));
    launch_norm(ctx, placed.input_norm, placed.qkv, rows, normed);
    (*linear_)(normed, weights_.view(ctx, placed.qkv), nullptr, qkv, DType::f32, rows, ctx.stream());

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
  };
  op.body = [this, phase, layer, rows, positions, targets, kept, to = keep.to](BodyContext& ctx) {
    const LayerWeights& weights = model_.weights.layers[layer];
    const ModelConfig& c = model_.config;
    const std::size_t kv_width = std::size_t{c.kv_heads} * c.head_dim;
    float* normed = ctx.write<float>(scratch_);        // [rows][hidden]
    float* k = normed + std::size_t{rows} * c.hidden;  // [rows][Hkv][D]
    float* v = k + rows * kv_width;                    // [rows][Hkv][D]
    float* q = ctx.write<float>(q_);
    const float* x = ctx.read<float>(x_);
    for_rows(pool_, rows, [&](std::uint32_t first, std::uint32_t last) {
      const std::size_t at = std::size_t{first} * c.hidden;
      rms_norm(x + at, weights.input_norm, c.rms_eps, normed + at, last - first, c.hidden);
    });
    make_query(phase, precision(), model_, rope_, pool_, layer, normed, positions, q);
    project(phase, precision(), pool_, normed, weights.k, weights.k_bias, k, rows);
    project(phase, precision(), pool_, normed, weights.v, weights.v_bias, v, rows);
    char* pages = ctx.write<char>(kv_.device_buffer());
    const DType type = kv_.shape().type;
    for_rows(pool_, rows, [&](std::uint32_t first, std::uint32_t last) {
      float* keys = k + first * kv_width;
      if (c.qk_norm) rms_norm(keys, weights.k_norm, c.rms_eps, keys, (last - first) * c.kv_heads, c.head_dim);
      rope(keys, positions.data() + first, rope_, last - first, c.kv_heads);
      for (std::uint32_t row = first; row < last; ++row) {
        for (std::uint32_t head = 0; head < c.kv_heads; ++head) {
          const std::size_t at = targets[row].offset * kv_.shape().vector_bytes();
          const std::size_t from = row * kv_width + std::size_t{head} * c.head_dim;
          from_f32(k + from, type, c.head_dim, pages + kv_.k_offset(targets[row].slot, head) + at);
          from_f32(v + from, type, c.head_dim, pages + kv_.v_offset(targets[row].slot, head) + at);
        }
      }
    });
    if (observer_ != nullptr) observer_->qkv_done({layer, positions, x, q, k, v});
    const std::size_t width = std::size_t{c.q_heads} * c.head_dim;
    for (std::uint32_t row = rows - kept; row < rows; ++row) {
      const std::size_t at = std::size_t{layer} * to.kept + positions[row] % to.kept;
      std::copy_n(q + row * width, width, ctx.write<float>(to.values) + at * width);
    }
  };
  const Event written = device_.submit(compute_, std::move(op));
  if (shown_) shown_->show_qkv(*observer_, layer, positions, x_, q_, written);
  return written;
}

Event Forward::predict_query(std::uint32_t layer, std::uint32_t norm_of, std::vector<std::uint32_t> positions,
                             const DeviceBuffer& out) {
  const auto rows = static_cast<std::uint32_t>(positions.size());
  const LayerWeights& w = model_.weights.layers[layer];
  Op op("predict query", Cause::none, layer);
  op.cost = weights_cost(Phase::decode, {w.q}, rows);
  op.cost.kernels = 3;  // norm, product, QK-norm and RoPE
  op.cost.hbm += w.q_bias.bytes();
  op.access = {x_.reads(0, rows), out.writes(0, rows), scratch_.writes(), weights_.reads_layer(layer)};
  if (norm_of != layer) op.access.push_back(weights_.reads_layer(norm_of));
  op.launch = [&](LaunchContext& ctx) {
    // The first rows of what makes queries, keys and values make the queries.
    const DeviceWeights::Layer& placed = weights_.layer(layer);
    const QkvShape shape{shape_.q_heads, 0, shape_.head_dim};
    MatrixView product = weights_.view(ctx, placed.qkv);
    product.rows = shape.columns();
    Cutter scratch(ctx.write<char>(scratch_));
    void* const normed = scratch.take(std::size_t{rows} * shape_.hidden * size_of(product.type));
    auto* const raw = scratch.take<float>(std::size_t{rows} * shape.columns() * sizeof(float));
    launch_norm(ctx, weights_.layer(norm_of).input_norm, placed.qkv, rows, normed);
    (*linear_)(normed, product, nullptr, raw, DType::f32, rows, ctx.stream());
    std::vector<QkvToken> tokens(rows);
    for (std::uint32_t row = 0; row < rows; ++row) tokens[row].position = positions[row];
    prepare_qkv_cuda(raw, shape, qkv_weights(ctx, layer), ctx.pass(tokens), ctx.write<float>(out), {}, rows,
                     ctx.stream());
  };
  op.body = [this, layer, norm_of, rows, positions, out](BodyContext& ctx) {
    const ModelConfig& c = model_.config;
    float* normed = ctx.write<float>(scratch_);
    rms_norm(ctx.read<float>(x_), model_.weights.layers[norm_of].input_norm, c.rms_eps, normed, rows, c.hidden);
    make_query(Phase::decode, precision(), model_, rope_, pool_, layer, normed, positions, ctx.write<float>(out));
    if (observer_ != nullptr) observer_->query_predicted({layer, positions, ctx.read<float>(out)});
  };
  const Event written = device_.submit(compute_, std::move(op));
  if (shown_) shown_->show_predicted(*observer_, layer, positions, out, written);
  return written;
}

Event Forward::prefill_attention(SequenceId sequence, std::uint32_t layer, std::uint32_t first, std::uint32_t rows,
                                 Event there) {
  const std::uint32_t blocks = blocks_for(first + rows);
  Op op("prefill attention", Cause::none, layer);
  op.cost.work = Work::prefill_attention;
  add_prefill_attention(op.cost, first, rows, shape_.q_heads, shape_.head_dim, blocks * kv_.shape().slot_bytes());
  op.access = {q_.reads(0, rows), attention_.writes(0, rows)};
  wait_for(op.after, there);
  const std::vector<std::uint32_t> slots = kv_.declare_reads(op, sequence, layer, {0, blocks}, Tier::device);
  op.launch = [&](LaunchContext& ctx) {
    PrefillChunk chunk;
    chunk.q = ctx.read<float>(q_);
    chunk.kv = device_pages(ctx, kv_);
    chunk.slots = ctx.upload(slots);
    chunk.first_position = first;
    chunk.n = rows;
    chunk.q_heads = shape_.q_heads;
    chunk.out = ctx.write<float>(attention_);
    prefill_attention_cuda(chunk, ctx.stream());
  };
  op.body = [this, first, rows, slots](BodyContext& ctx) {
    const char* pages = ctx.read<char>(kv_.device_buffer());
    std::vector<std::vector<const void*>> k(shape_.kv_heads), v(shape_.kv_heads);
    std::vector<PrefillKv> kv(shape_.kv_heads);
    for (std::uint32_t head = 0; head < shape_.kv_heads; ++head) {
      for (const std::uint32_t slot : slots) {
        k[head].push_back(pages + kv_.k_offset(slot, head));
        v[head].push_back(pages + kv_.v_offset(slot, head));
      }
      kv[head] = {k[head], v[head], kv_.shape().type};
    }
    tandem::prefill_attention(pool_, ctx.read<float>(q_), kv, first, rows, shape_.q_heads, shape_.kv_heads,
                              shape_.head_dim, ctx.write<float>(attention_));
  };
  return device_.submit(compute_, std::move(op));
}

Event Forward::finish_layer(Phase phase, std::uint32_t layer, std::uint32_t rows) {
  const LayerWeights& w = model_.weights.layers[layer];
  Op op("output and mlp", Cause::none, layer);
  op.cost = weights_cost(phase, {w.o, w.gate, w.up, w.down}, rows);
  // Output product with the residual, norm, gate and up in one, SwiGLU, down product with the residual; before them
  // what attention gives is rounded to what the product reads.
  op.cost.kernels = w.o.type == DType::f32 ? 5 : 6;
  op.cost.heavy = 3;  // the products
  op.access = {attention_.reads(0, rows), x_.writes(0, rows), scratch_.writes(), weights_.reads_layer(layer)};
  op.launch = [&](LaunchContext& ctx) {
    const DeviceWeights::Layer& placed = weights_.layer(layer);
    const ModelConfig& c = model_.config;
    const std::size_t width = std::size_t{c.q_heads} * c.head_dim;
    Cutter scratch(ctx.write<char>(scratch_));
    const void* attended = ctx.read<float>(attention_);
    if (placed.o.type != DType::f32) {
      void* const rounded = scratch.take(rows * width * size_of(placed.o.type));
      convert_cuda(attended, DType::f32, rounded, placed.o.type, rows * width, ctx.stream());
      attended = rounded;
    }
    void* const normed = scratch.take(std::size_t{rows} * c.hidden * size_of(placed.gate_up.type));
    auto* const gate_up = scratch.take<float>(std::size_t{2} * rows * c.intermediate * sizeof(float));
    void* const activated = scratch.take(std::size_t{rows} * c.intermediate * size_of(placed.down.type));
    auto* const x = ctx.write<float>(x_);
    linear_->add(attended, weights_.view(ctx, placed.o), x, rows, ctx.stream());
    rms_norm_cuda(x, weights_.view(ctx, placed.post_norm), c.rms_eps, normed, placed.gate_up.type, rows, c.hidden,
                  ctx.stream());
    (*linear_)(normed, weights_.view(ctx, placed.gate_up), nullptr, gate_up, DType::f32, rows, ctx.stream());
    swiglu_cuda(gate_up, gate_up + c.intermediate, std::size_t{2} * c.intermediate, activated, placed.down.type, rows,
                c.intermediate, ctx.stream());
    linear_->add(activated, weights_.view(ctx, placed.down), x, rows, ctx.stream());
  };
  op.body = [this, phase, layer, rows](BodyContext& ctx) {
    const LayerWeights& weights = model_.weights.layers[layer];
    const ModelConfig& c = model_.config;
    const std::size_t wide = std::size_t{rows} * c.intermediate, narrow = std::size_t{rows} * c.hidden;
    float* x = ctx.write<float>(x_);
    float* normed = ctx.write<float>(scratch_);  // [rows][hidden]
    float* out = normed + narrow;                // [rows][hidden]
    float* gate = out + narrow;                  // [rows][intermediate]
    float* up = gate + wide;                     // [rows][intermediate]
    project(phase, precision(), pool_, ctx.read<float>(attention_), weights.o, {}, out, rows);
    for_rows(pool_, rows, [&](std::uint32_t first, std::uint32_t last) {
      const std::size_t at = std::size_t{first} * c.hidden, count = std::size_t{last - first} * c.hidden;
      add(x + at, out + at, count);
      rms_norm(x + at, weights.post_norm, c.rms_eps, normed + at, last - first, c.hidden);
    });
    project(phase, precision(), pool_, normed, weights.gate, {}, gate, rows);
    project(phase, precision(), pool_, normed, weights.up, {}, up, rows);
    for_rows(pool_, rows, [&](std::uint32_t first, std::uint32_t last) {
      const std::size_t at = std::size_t{first} * c.intermediate, count = std::size_t{last - first} * c.intermediate;
      swiglu(gate + at, up + at, gate + at, count);
    });
    project(phase, precision(), pool_, gate, weights.down, {}, out, rows);
    for_rows(pool_, rows, [&](std::uint32_t first, std::uint32_t last) {
      const std::size_t at = std::size_t{first} * c.hidden;
      add(x + at, out + at, std::size_t{last - first} * c.hidden);
    });
  };
  return device_.submit(compute_, std::move(op));
}

}  // namespace tandem
