#include "engine/runtime/forward.h"

#include <algorithm>
#include <numeric>

#include "engine/common/error.h"
#include "engine/common/interrupt.h"
#include "engine/device/copy_list.h"
#include "engine/device/launch_context.h"
#include "engine/kernels/linear.h"
#include "engine/kernels/pointwise.h"
#include "engine/kernels/sampling.h"
#include "engine/runtime/copy_op.h"
#include "engine/runtime/layer_costs.h"

namespace tandem {

ModelShape shape_of(const ModelConfig& c) {
  return {c.layers, c.hidden, c.q_heads, c.kv_heads, c.head_dim};
}

Forward::Forward(const Model& model, Device& device, ThreadPool& pool, KvStore& kv, std::uint32_t max_rows,
                 std::uint32_t max_batch, std::size_t score_floats)
    : model_(model),
      device_(device),
      pool_(pool),
      kv_(kv),
      shape_(shape_of(model.config)),
      rope_(make_rope_table(model.config.head_dim, model.config.rope)),
      linear_(device.is_gpu() ? std::make_unique<LinearCuda>() : nullptr),
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
  if (device.is_gpu())
    choose_scratch_ = device.allocate_device(choose_scratch_bytes(max_batch, model.config.vocab), "choose scratch");
  host_tokens_ = device.allocate_host(rows * sizeof(std::int32_t), "host tokens");
  host_top_ = device.allocate_host(max_batch * sizeof(TopTwo), "host top");
  host_log_probability_ = device.allocate_host(max_batch * sizeof(double), "host log probability");
  host_drawn_ = device.allocate_host(max_batch * sizeof(std::int32_t), "host drawn tokens");
}

void Forward::observe(ForwardObserver* observer) {
  observer_ = observer;
  shown_ = observer != nullptr && device_.is_gpu() ? std::make_unique<ShownRows>(device_, shape_, max_rows_) : nullptr;
}

/// x under a norm, as the product with `next` wants it.
void Forward::launch_norm(LaunchContext& ctx, const PlacedMatrix& norm, const PlacedMatrix& next, std::uint32_t rows,
                          void* normed) const {
  rms_norm_cuda(ctx.read<float>(x_), weights_.view(ctx, norm), model_.config.rms_eps, normed, next.type, rows,
                shape_.hidden, ctx.stream());
}

/// logits() of rows [first, first + rows) of what launch_norm left in the scratch buffer.
void Forward::launch_logits(LaunchContext& ctx, std::uint32_t first, std::uint32_t rows) {
  const PlacedMatrix& head = weights_.lm_head();
  const char* const normed = ctx.read<char>(scratch_) + std::size_t{first} * shape_.hidden * size_of(head.type);
  (*linear_)(normed, weights_.view(ctx, head), nullptr, ctx.write<float>(logits_), DType::f32, rows, ctx.stream());
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
  op.launch = [&](LaunchContext& ctx) {
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
  };
  op.body = [this, source](BodyContext& ctx) {
    const std::int32_t* tokens = ctx.read<std::int32_t>(tokens_);
    std::vector<std::int32_t> ids(source.size());
    for (std::size_t row = 0; row < source.size(); ++row) ids[row] = tokens[source[row]];
    tandem::embed(model_.weights.embedding, ids.data(), ctx.write<float>(x_), static_cast<std::uint32_t>(ids.size()));
  };
  return device_.submit(compute_, std::move(op));
}

Event Forward::prefill_chunk(const char* segment, SequenceId sequence, std::span<const std::int32_t> tokens,
                             const KeepQueries& keep, LayerKeeper* keeper, const Attend& attend) {
  const auto rows = static_cast<std::uint32_t>(tokens.size());
  const std::uint32_t first = kv_.tokens(sequence), block = first / kPageTokens;
  if (keeper != nullptr) keeper->make_room(sequence, rows);
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
    const Event there = keeper != nullptr ? keeper->need(sequence, layer) : Event{};
    std::vector<std::uint32_t> slots;
    kv_.append_slots(sequence, layer, {block, blocks_for(first + rows)}, Tier::device, slots);
    std::vector<KvTarget> targets;
    targets.reserve(rows);
    for (const std::uint32_t position : positions)
      targets.push_back({slots[position / kPageTokens - block], position % kPageTokens});
    const Event written =
        qkv(Phase::prefill, layer, positions, std::move(targets), layer == 0 ? recycled : std::vector<Event>{}, keep);
    attend({layer, first, rows, written, there});
    last = finish_layer(Phase::prefill, layer, rows);
    if (keeper != nullptr) keeper->read(sequence, layer, last);
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
  op.launch = [&](LaunchContext& ctx) {
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
  };
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
  op.launch = [&](LaunchContext& ctx) {
    const std::size_t vocab = model_.config.vocab;
    launch_norm(ctx, weights_.final_norm(), weights_.lm_head(), rows, ctx.write<char>(scratch_));
    for (std::uint32_t first = 0; first < rows; first += max_batch_) {  // as many as there is room for logits
      const std::uint32_t count = std::min(max_batch_, rows - first);
      launch_logits(ctx, first, count);
      cuda_copy(out + first * vocab, ctx.read<float>(logits_), count * vocab * sizeof(float), ctx.stream());
    }
  };
  op.body = [this, rows, out](BodyContext& ctx) {
    float* normed = ctx.write<float>(scratch_);
    rms_norm(ctx.read<float>(x_), model_.weights.final_norm, model_.config.rms_eps, normed, rows, model_.config.hidden);
    (precision() == DType::bf16 ? linear_prefill_bf16 : linear_prefill)(pool_, normed, model_.weights.lm_head, nullptr,
                                                                        out, rows);
  };
  device_.host_wait(device_.submit(compute_, std::move(op)));
}

}  // namespace tandem
