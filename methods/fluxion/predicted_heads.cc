#include "methods/fluxion/predicted_heads.h"

#include <memory>
#include <utility>
#include <vector>

#include "engine/common/error.h"
#include "engine/kernels/attention.h"
#include "methods/fluxion/features.h"
#include "methods/fluxion/predictor_on_gpu.h"

namespace tandem {
namespace {

/// Of one sequence, by layer.
struct Statistics {
  std::vector<PrefillStatistics> layers;
  std::unique_ptr<KnownOnGpu> on_gpu = std::make_unique<KnownOnGpu>();
};

class PredictedHeads : public HeadSource {
 public:
  PredictedHeads(std::shared_ptr<const Predictor> predictor, BudgetPolicy policy,
                 std::shared_ptr<const HeadSource> otherwise)
      : predictor_(std::move(predictor)),
        policy_(policy),
        otherwise_(std::move(otherwise)),
        on_gpu_(std::make_unique<PredictorOnGpu>(*predictor_)) {}

  void check(const ModelShape& shape, std::uint32_t sinks, std::uint32_t window) const override {
    const Predictor::Subject& s = predictor_->subject();
    if (s == Predictor::Subject{shape.layers, shape.q_heads, shape.kv_heads, shape.head_dim, sinks, window}) return;
    throw_input_error(
        "Method fluxion, option 'heads': the predictor was trained for a model of {} layers, {} query heads, {} KV "
        "heads "
        "of {} values, with sinks={} and window={}, but this one has {}, {}, {} of {}, sinks={}, window={}. Train one "
        "for it (tandem fluxion), or give heads=fixed with bgt and slope, or, where only a shape is simulated, "
        "heads=published.",
        s.layers, s.q_heads, s.kv_heads, s.head_dim, s.sinks, s.window, shape.layers, shape.q_heads, shape.kv_heads,
        shape.head_dim, sinks, window);
  }

  std::uint64_t content() const override { return predictor_->hash(); }
  std::string trained_for() const override { return predictor_->weights_hash(); }
  // A head that needs one block of hundreds is short by next to nothing without it, as the loss counts, and by all that
  // it needs: of the embedded model's copying heads 3 % got none at 3K.
  std::uint32_t least_blocks() const override { return 1; }
  std::uint32_t last_queries() const override { return 1; }

  std::shared_ptr<void> prepare(SequenceState& sequence, Range host, Ops& ops) const override {
    if (host.begin >= host.end) return nullptr;
    const ModelShape shape = ops.shape();
    auto statistics = std::make_shared<Statistics>();
    statistics->layers.resize(shape.layers);
    ContextRequest request = statistics_request(shape, sequence.tokens);
    request.read = [shape, host, statistics, policy = policy_, limits = predictor_->limits()](const ContextView& view) {
      LayerQuery layer;
      layer.q_heads = shape.q_heads;
      layer.kv_heads = shape.kv_heads;
      layer.dim = shape.head_dim;
      layer.q = view.query;
      layer.keys = view.keys;
      layer.values = view.values;
      layer.segments = {host.begin, host.end, view.tokens, view.tokens};
      std::vector<HostDigests> digests;
      digests.reserve(shape.kv_heads);
      for (const float* keys : view.keys)
        digests.emplace_back(keys + std::size_t{host.begin} * shape.head_dim, host.end - host.begin, shape.head_dim);
      statistics->layers[view.layer] = prefill_statistics(view.layer, layer, digests, limits, policy);
    };
    ops.use<ContextViews>().show(sequence, request);
    return statistics;
  }

  std::size_t kept_bytes(const ModelShape& shape) const override {
    return shape.layers * layer_statistics_bytes(shape);
  }
  Cost cost(const ModelShape& shape, std::uint32_t rows) const override {
    return prediction_cost(shape, rows, predictor_->flops(static_cast<int>(rows * shape.q_heads)), predictor_->bytes());
  }

  void properties(const ModelShape& shape, const HeadInputs& inputs, HeadProperties* out) const override {
    const HeadView& view = inputs.view;
    if (view.query == nullptr || inputs.memory == nullptr) {
      otherwise_->properties(shape, inputs, out);
      return;
    }
    const auto& statistics = *static_cast<const Statistics*>(inputs.memory);
    const std::size_t width = std::size_t{shape.q_heads} * shape.head_dim;
    std::vector<float> device(width), rows(std::size_t{shape.q_heads} * kFeatures);
    const float* parts[] = {view.apart[0].out, view.apart[1].out, view.rest.out};
    const float* sums[] = {view.apart[0].lse, view.apart[1].lse, view.rest.lse};
    merge_partials(parts, sums, 3, shape.q_heads, shape.head_dim, device.data(), nullptr);
    const std::uint32_t host = inputs.host.end - inputs.host.begin;
    features(statistics.layers[view.layer],
             {.host_tokens = host,
              .device_tokens = view.tokens - host,
              .q = view.query,
              .sink_o = view.apart[0].out,
              .sink_lse = view.apart[0].lse,
              .local_o = view.apart[1].out,
              .local_lse = view.apart[1].lse,
              .device_o = device.data()},
             rows.data());
    predictor_->predict(rows.data(), static_cast<int>(shape.q_heads), out);
  }

  void launch(LaunchContext& ctx, const ModelShape& shape, std::span<const HeadInputs> inputs,
              float* out) const override {
    std::vector<PredictedRow> predicted;
    std::vector<HeadInputs> others;
    predicted.reserve(inputs.size());
    others.reserve(inputs.size());
    for (const HeadInputs& row : inputs) {
      if (row.memory == nullptr) {
        others.push_back(row);
        continue;
      }
      const auto& statistics = *static_cast<const Statistics*>(row.memory);
      predicted.push_back(
          {row.view, row.host.end - row.host.begin, statistics.on_gpu->layer(ctx, statistics.layers, row.view.layer)});
    }
    if (!predicted.empty()) on_gpu_->predict(ctx, shape, predicted, out);
    if (!others.empty()) otherwise_->launch(ctx, shape, others, out);
  }

 private:
  std::shared_ptr<const Predictor> predictor_;
  BudgetPolicy policy_;
  std::shared_ptr<const HeadSource> otherwise_;
  std::unique_ptr<PredictorOnGpu> on_gpu_;
};

}  // namespace

ContextRequest statistics_request(const ModelShape& shape, std::uint32_t tokens) {
  ContextRequest request;
  // Attention of one query, and for each of the block sizes blocks in the order of their scores.
  const std::uint64_t width = std::uint64_t{shape.q_heads} * shape.head_dim;
  request.cost.flops = 4 * tokens * width * (1 + kLabelBlocks.size());
  request.cost.kernels = 4;
  return request;
}

std::size_t layer_statistics_bytes(const ModelShape& shape) {
  const std::size_t of_heads = shape.q_heads * std::size_t{kFeatures + shape.head_dim};  // known features, the anchor
  return (of_heads + std::size_t{shape.kv_heads} * shape.head_dim) * sizeof(float);      // mean keys
}

Cost prediction_cost(const ModelShape& shape, std::uint32_t rows, std::uint64_t flops, std::uint64_t bytes) {
  const std::uint64_t heads = std::uint64_t{rows} * shape.q_heads;
  Cost cost;
  cost.flops = flops + 12 * heads * shape.head_dim;
  cost.context = rows * layer_statistics_bytes(shape);
  // The network once; per head what is known of it, and what is made of that, written and read.
  cost.hbm = bytes + cost.context + heads * 2 * kFeatures * sizeof(float);
  cost.kernels =
      3;  // what lies on the device merged, features, the network for rows that lie side by side: all of them
  return cost;
}

std::shared_ptr<const HeadSource> predicted_heads(std::shared_ptr<const Predictor> predictor, BudgetPolicy policy,
                                                  std::shared_ptr<const HeadSource> otherwise) {
  return std::make_shared<PredictedHeads>(std::move(predictor), policy, std::move(otherwise));
}

}  // namespace tandem
