#include "engine/runtime/forward.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "engine/common/error.h"
#include "engine/common/interrupt.h"
#include "engine/kernels/attention.h"
#include "engine/kernels/attention_weights.h"
#include "engine/kernels/convert.h"
#include "engine/kernels/linear.h"
#include "engine/kernels/pointwise.h"
#include "engine/kernels/sampling.h"
#include "engine/runtime/copy_op.h"
#include "engine/runtime/layer_costs.h"

namespace tandem {

ModelShape shape_of(const ModelConfig& c) {
  return {c.layers, c.hidden, c.q_heads, c.kv_heads, c.head_dim};
}

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

Forward::Forward(const Model& model, Device& device, ThreadPool& pool, KvStore& kv, std::uint32_t max_rows,
                 std::uint32_t max_batch, std::size_t score_floats)
    : model_(model),
      device_(device),
      pool_(pool),
      kv_(kv),
      shape_(shape_of(model.config)),
      rope_(make_rope_table(model.config.head_dim, model.config.rope)),
      linear_(device.launches() ? std::make_unique<LinearCuda>() : nullptr),
      weights_(device, model, rope_),
      max_rows_(max_rows),
      max_batch_(max_batch),
      score_floats_(score_floats),
      compute_(device.lane(LaneKind::device_compute)),
      h2d_(device.lane(LaneKind::h2d)),
      d2h_(device.lane(LaneKind::d2h)) {
  const std::size_t rows = max_rows;
  const std::size_t q_width = std::size_t{shape_.q_heads} * shape_.head_dim;
  tokens_ = device.allocate_device(rows * sizeof(std::int32_t), "tokens");
  x_ = device.allocate_device(rows * shape_.hidden * sizeof(float), "x");
  q_ = device.allocate_device(rows * q_width * sizeof(float), "q");
  attention_ = device.allocate_device(rows * q_width * sizeof(float), "attention");
  scratch_ = device.allocate_device(scratch_floats(rows) * sizeof(float), "scratch");
  logits_ = device.allocate_device(std::size_t{max_batch} * model.config.vocab * sizeof(float), "logits");
  top_ = device.allocate_device(max_batch * sizeof(TopTwo), "top");
  log_probability_ = device.allocate_device(max_batch * sizeof(double), "log probability");
  if (device.launches())
    choose_scratch_ = device.allocate_device(choose_scratch_bytes(max_batch, model.config.vocab), "choose scratch");
  host_tokens_ = device.allocate_host(rows * sizeof(std::int32_t), "host tokens");
  host_top_ = device.allocate_host(max_batch * sizeof(TopTwo), "host top");
  host_log_probability_ = device.allocate_host(max_batch * sizeof(double), "host log probability");
  host_drawn_ = device.allocate_host(max_batch * sizeof(std::int32_t), "host drawn tokens");
}

void Forward::observe(ForwardObserver* observer) {
  observer_ = observer;
  shown_ =
      observer != nullptr && device_.launches() ? std::make_unique<ShownRows>(device_, shape_, max_rows_) : nullptr;
}

Cost Forward::weights_cost(Phase phase, std::initializer_list<MatrixView> weights, std::uint32_t rows) const {
  Cost cost;
  cost.work = phase == Phase::prefill ? Work::gemm : Work::weights;
  for (const MatrixView& w : weights) add_product(cost, rows, w.rows, w.cols, w.bytes());
  return cost;
}

Event Forward::upload_tokens(std::span<const std::int32_t> ids) {
  const auto rows = static_cast<std::uint32_t>(ids.size());
  TANDEM_CHECK(rows <= max_rows_, "{} tokens, room for {}", rows, max_rows_);
  std::copy(ids.begin(), ids.end(), device_.host_write<std::int32_t>(host_tokens_, {0, rows}).begin());
  Op op("upload tokens", Cause::transfer);
  copy_rows(op, rows, {{tokens_, host_tokens_, ids.size_bytes()}});
  return device_.submit(h2d_, std::move(op));
}

Event Forward::embed(std::vector<std::uint32_t> source, std::vector<Event> after) {
  const auto rows = static_cast<std::uint32_t>(source.size());
  Op op("embed");
  op.cost.hbm = std::uint64_t{rows} * shape_.hidden * (size_of(model_.weights.embedding.type) + sizeof(float));
  op.access = {tokens_.reads(), x_.writes(0, rows), weights_.reads_ends()};
  op.after = std::move(after);
  op.launch = [&](LaunchContext& ctx) { launch_embed(ctx, source); };
  op.body = [this, source](BodyContext& ctx) {
    const std::int32_t* tokens = ctx.read<std::int32_t>(tokens_);
    std::vector<std::int32_t> ids(source.size());
    for (std::size_t row = 0; row < source.size(); ++row) ids[row] = tokens[source[row]];
    tandem::embed(model_.weights.embedding, ids.data(), ctx.write<float>(x_), static_cast<std::uint32_t>(ids.size()));
  };
  return device_.submit(compute_, std::move(op));
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
  op.launch = [&](LaunchContext& ctx) { launch_qkv(ctx, layer, positions, targets, keep, kept); };
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
    launch_predicted_query(ctx, layer, norm_of, positions, ctx.write<float>(out));
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

Event Forward::prefill_attention(SequenceId sequence, std::uint32_t layer, std::uint32_t first, std::uint32_t rows) {
  const std::uint32_t blocks = blocks_for(first + rows);
  Op op("prefill attention", Cause::none, layer);
  op.cost.work = Work::prefill_attention;
  add_prefill_attention(op.cost, first, rows, shape_.q_heads, shape_.head_dim, blocks * kv_.shape().slot_bytes());
  op.access = {q_.reads(0, rows), attention_.writes(0, rows)};
  const std::vector<std::uint32_t> slots = kv_.declare_reads(op, sequence, layer, {0, blocks}, Tier::device);
  op.launch = [&](LaunchContext& ctx) { launch_prefill_attention(ctx, first, rows, slots); };
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
  op.launch = [&](LaunchContext& ctx) { launch_finish_layer(ctx, layer, rows); };
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

Event Forward::prefill_chunk(const char* segment, SequenceId sequence, std::span<const std::int32_t> tokens,
                             const KeepQueries& keep, const Attend& attend) {
  const auto rows = static_cast<std::uint32_t>(tokens.size());
  const std::uint32_t first = kv_.tokens(sequence), block = first / kPageTokens;
  std::vector<Event> recycled;
  kv_.grow(sequence, rows, recycled);
  std::vector<std::uint32_t> positions(rows), source(rows);
  std::iota(positions.begin(), positions.end(), first);
  std::iota(source.begin(), source.end(), 0u);
  const Event uploaded = upload_tokens(tokens);
  const Segment open(device_, segment);
  embed(std::move(source), {uploaded});
  Event last;
  for (std::uint32_t layer = 0; layer < shape_.layers; ++layer) {
    stop_if_interrupted();  // a chunk of a large model takes long
    std::vector<std::uint32_t> slots;
    kv_.append_slots(sequence, layer, {block, blocks_for(first + rows)}, Tier::device, slots);
    std::vector<KvTarget> targets;
    targets.reserve(rows);
    for (const std::uint32_t position : positions)
      targets.push_back({slots[position / kPageTokens - block], position % kPageTokens});
    const Event written =
        qkv(Phase::prefill, layer, positions, std::move(targets), layer == 0 ? recycled : std::vector<Event>{}, keep);
    attend(layer, first, rows, written);
    last = finish_layer(Phase::prefill, layer, rows);
  }
  return last;
}

Event Forward::sample(std::uint32_t rows, std::vector<std::int32_t> forced, std::vector<Draw> draws) {
  TANDEM_CHECK(draws.empty() || (draws.size() == rows && forced.empty()), "{} draws for {} rows", draws.size(), rows);
  Op op("logits and arg max", Cause::sampling);
  op.cost = weights_cost(Phase::decode, {model_.weights.lm_head}, rows);
  op.cost.kernels = draws.empty() ? 4 : 5;  // norm, product, arg max of parts and of these, draws
  for (const Draw& draw : draws)            // as if every pass came from HBM: a vocabulary's logits may be in the cache
    op.cost.hbm += std::uint64_t{sampling_passes(draw.how, model_.config.vocab)} * model_.config.vocab * sizeof(float);
  op.access = {x_.reads(0, rows),    scratch_.writes(), logits_.writes(0, rows),
               top_.writes(0, rows), tokens_.writes(),  weights_.reads_ends()};
  if (choose_scratch_) op.access.push_back(choose_scratch_.writes());
  if (!forced.empty()) op.access.push_back(log_probability_.writes(0, rows));
  op.launch = [&](LaunchContext& ctx) { launch_sample(ctx, rows, forced, draws); };
  op.body = [this, rows, forced, draws](BodyContext& ctx) {
    const ModelConfig& c = model_.config;
    float* normed = ctx.write<float>(scratch_);
    float* logits = ctx.write<float>(logits_);
    rms_norm(ctx.read<float>(x_), model_.weights.final_norm, c.rms_eps, normed, rows, c.hidden);
    linear(pool_, normed, model_.weights.lm_head, nullptr, logits, rows);
    TopTwo* top = ctx.write<TopTwo>(top_);
    std::int32_t* tokens = ctx.write<std::int32_t>(tokens_);
    for (std::uint32_t row = 0; row < rows; ++row) {
      top[row] = top_two(logits + std::size_t{row} * c.vocab, c.vocab);
      tokens[row] = top[row].best;
      if (!draws.empty())
        tokens[row] = sample_token(logits + std::size_t{row} * c.vocab, c.vocab, draws[row].how, draws[row].position);
      if (forced.empty()) continue;
      tokens[row] = forced[row];
      ctx.write<double>(log_probability_)[row] =
          log_probability(logits + std::size_t{row} * c.vocab, c.vocab, static_cast<std::uint32_t>(forced[row]));
    }
  };
  return device_.submit(compute_, std::move(op));
}

Event Forward::download_top(std::uint32_t rows, bool forced, bool drawn, Event sampled) {
  Op op("download tokens", Cause::sampling);
  op.after = {sampled};
  std::vector<RowsCopy> copies = {{host_top_, top_, rows * sizeof(TopTwo)}};
  if (forced) copies.push_back({host_log_probability_, log_probability_, rows * sizeof(double)});
  if (drawn) copies.push_back({host_drawn_, tokens_, rows * sizeof(std::int32_t)});
  copy_rows(op, rows, std::move(copies));
  op.cost.pieces = 1;
  return device_.submit(d2h_, std::move(op));
}

void Forward::all_logits(std::uint32_t rows, float* out) {
  Op op("all logits");
  op.cost = weights_cost(Phase::prefill, {model_.weights.lm_head}, rows);
  op.cost.heavy = (rows + max_batch_ - 1) / max_batch_;
  op.cost.kernels = 1 + op.cost.heavy;  // norm, products
  op.access = {x_.reads(0, rows), scratch_.writes(), logits_.writes(), weights_.reads_ends()};
  op.launch = [&](LaunchContext& ctx) { launch_all_logits(ctx, rows, out); };
  op.body = [this, rows, out](BodyContext& ctx) {
    float* normed = ctx.write<float>(scratch_);
    rms_norm(ctx.read<float>(x_), model_.weights.final_norm, model_.config.rms_eps, normed, rows, model_.config.hidden);
    project(Phase::prefill, precision(), pool_, normed, model_.weights.lm_head, {}, out, rows);
  };
  device_.host_wait(device_.submit(compute_, std::move(op)));
}

}  // namespace tandem
