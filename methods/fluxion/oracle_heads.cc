#include "methods/fluxion/oracle_heads.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/common/error.h"
#include "engine/kernels/attention.h"
#include "engine/mechanisms/context_view/context_view.h"

namespace tandem {
namespace {

/// Of one layer of a sequence: its host segment, in f32.
struct HostLayer {
  std::vector<std::vector<float>> keys, values;  // [Hkv] -> [tokens][D]
  std::vector<const float*> key_rows, value_rows;
  std::vector<HostDigests> digests;  // [Hkv]
};
struct HostCopy {
  std::uint32_t tokens = 0;
  std::vector<HostLayer> layers;
};

/// Filled on the device while the sequence is there.
std::shared_ptr<HostCopy> copy_host(SequenceState& sequence, Range host, Ops& ops) {
  const ModelShape shape = ops.shape();
  auto copy = std::make_shared<HostCopy>();
  copy->tokens = host.end - host.begin;
  copy->layers.resize(shape.layers);
  ContextRequest request;
  request.read = [shape, host, copy](const ContextView& view) {
    HostLayer& layer = copy->layers[view.layer];
    const std::size_t begin = std::size_t{host.begin} * shape.head_dim, end = std::size_t{host.end} * shape.head_dim;
    for (std::uint32_t g = 0; g < shape.kv_heads; ++g) {
      layer.keys.emplace_back(view.keys[g] + begin, view.keys[g] + end);
      layer.values.emplace_back(view.values[g] + begin, view.values[g] + end);
      layer.digests.emplace_back(layer.keys[g].data(), copy->tokens, shape.head_dim);
    }
    for (std::uint32_t g = 0; g < shape.kv_heads; ++g) {
      layer.key_rows.push_back(layer.keys[g].data());
      layer.value_rows.push_back(layer.values[g].data());
    }
  };
  ops.use<ContextViews>().show(sequence, request);
  return copy;
}

/// A row's query against all that the host has.
struct Look {
  const HostLayer& layer;
  LayerQuery query;  // its tokens are the host's alone
  std::vector<HeadAttention> heads;
  double largest = 0;  // max_h |o_h|

  Look(const ModelShape& shape, const HeadView& view, const HostCopy& copy) : layer(copy.layers[view.layer]) {
    const std::size_t width = std::size_t{shape.q_heads} * shape.head_dim;
    std::vector<float> device(width), lse(shape.q_heads);
    const float* parts[] = {view.apart[0].out, view.apart[1].out, view.rest.out};
    const float* sums[] = {view.apart[0].lse, view.apart[1].lse, view.rest.lse};
    merge_partials(parts, sums, 3, shape.q_heads, shape.head_dim, device.data(), lse.data());
    heads = attend_host({.q_heads = shape.q_heads,
                         .kv_heads = shape.kv_heads,
                         .dim = shape.head_dim,
                         .tokens = copy.tokens,
                         .q = view.query,
                         .device_o = device.data(),
                         .device_lse = lse.data(),
                         .keys = layer.key_rows,
                         .values = layer.value_rows});
    query = {shape.q_heads,
             shape.kv_heads,
             shape.head_dim,
             view.query,
             layer.key_rows,
             layer.value_rows,
             {0, copy.tokens, copy.tokens, copy.tokens}};
    for (const HeadAttention& head : heads) largest = std::max(largest, head.full.norm());
  }
};

void refuse_spilled(const HostCopy& copy, const Range& host) {
  if (host.end - host.begin == copy.tokens) return;
  throw_input_error(
      "Method fluxion: labels are measured over what the prompt left in host memory, and tokens were spilled there "
      "since: give spill=0.");
}

class OracleHeads : public HeadSource {
 public:
  OracleHeads(BudgetPolicy policy, BudgetLimits limits, BudgetLine line, std::shared_ptr<const HeadSource> otherwise)
      : policy_(policy), limits_(limits), line_(line), otherwise_(std::move(otherwise)) {}

  std::uint32_t last_queries() const override { return 1; }
  std::shared_ptr<void> prepare(SequenceState& sequence, Range host, Ops& ops) const override {
    return host.begin < host.end ? copy_host(sequence, host, ops) : nullptr;
  }
  Cost cost(const ModelShape&, std::uint32_t) const override { return {}; }

  void properties(const ModelShape& shape, const HeadInputs& inputs, HeadProperties* out) const override {
    if (inputs.view.query == nullptr) {
      throw_input_error(
          "Method fluxion, option 'heads': oracle measures what each head needs from keys and values, and where only a "
          "shape is simulated there are none: give heads=published, or heads=fixed with bgt and slope.");
    }
    if (inputs.memory == nullptr) {
      otherwise_->properties(shape, inputs, out);
      return;
    }
    const auto& copy = *static_cast<const HostCopy*>(inputs.memory);
    refuse_spilled(copy, inputs.host);
    const Look look(shape, inputs.view, copy);
    const auto labels = label_heads(look.query, look.heads, look.layer.digests, limits_);
    for (std::uint32_t h = 0; h < shape.q_heads; ++h)
      out[h] = labels[h][static_cast<std::size_t>(policy_)].properties(line_);
  }

 private:
  BudgetPolicy policy_;
  BudgetLimits limits_;
  BudgetLine line_;
  std::shared_ptr<const HeadSource> otherwise_;
};

class WatchedHeads : public HeadSource {
 public:
  WatchedHeads(std::shared_ptr<const HeadSource> source, SelectorStage stage, HeadWatch watch)
      : source_(std::move(source)), stage_(stage), watch_(std::move(watch)) {}

  void check(const ModelShape& shape, std::uint32_t sinks, std::uint32_t window) const override {
    source_->check(shape, sinks, window);
  }
  std::uint64_t content() const override { return source_->content(); }
  std::string trained_for() const override { return source_->trained_for(); }
  std::uint32_t least_blocks() const override { return source_->least_blocks(); }
  bool lossless() const override { return source_->lossless(); }
  std::uint32_t last_queries() const override { return std::max(source_->last_queries(), 1u); }
  std::size_t kept_bytes(const ModelShape& shape) const override { return source_->kept_bytes(shape); }
  std::shared_ptr<void> prepare(SequenceState& sequence, Range host, Ops& ops) const override {
    if (host.begin >= host.end) return source_->prepare(sequence, host, ops);
    auto memory = std::make_shared<Memory>();
    memory->source = source_->prepare(sequence, host, ops);
    memory->copy = copy_host(sequence, host, ops);
    return memory;
  }
  Cost cost(const ModelShape& shape, std::uint32_t rows) const override { return source_->cost(shape, rows); }

  void properties(const ModelShape& shape, const HeadInputs& inputs, HeadProperties* out) const override {
    const auto* memory = static_cast<const Memory*>(inputs.memory);
    HeadInputs own = inputs;
    own.memory = memory == nullptr ? nullptr : memory->source.get();
    source_->properties(shape, own, out);
    if (memory == nullptr || inputs.view.query == nullptr) return;
    refuse_spilled(*memory->copy, inputs.host);
    const Look look(shape, inputs.view, *memory->copy);
    HeadErrors errors;
    for (std::uint32_t g = 0; g < shape.kv_heads; ++g) {
      const GroupChoice choice = choose_granularity({out + std::size_t{g} * shape.group(), shape.group()},
                                                    memory->copy->tokens, stage_, least_blocks());
      for (std::uint32_t i = 0; i < shape.group(); ++i) {
        const std::uint32_t h = g * shape.group() + i;
        const double error =
            selection_error(look.heads[h], inputs.view.query + std::size_t{h} * shape.head_dim,
                            look.layer.value_rows[g], look.layer.digests[g], choice.block, choice.keep[i]);
        errors.relative.push_back(look.largest > 0 ? error / look.largest : 0);
        errors.attended.push_back(std::min(1.0, double(choice.block) * choice.keep[i] / memory->copy->tokens));
      }
    }
    errors.layer = inputs.view.layer;
    watch_(errors);
  }

 private:
  struct Memory {
    std::shared_ptr<void> source;
    std::shared_ptr<HostCopy> copy;
  };
  std::shared_ptr<const HeadSource> source_;
  SelectorStage stage_;
  HeadWatch watch_;
};

}  // namespace

std::shared_ptr<const HeadSource> oracle_heads(BudgetPolicy policy, const BudgetLimits& limits, BudgetLine line,
                                               std::shared_ptr<const HeadSource> otherwise) {
  return std::make_shared<OracleHeads>(policy, limits, line, std::move(otherwise));
}

std::shared_ptr<const HeadSource> watched_heads(std::shared_ptr<const HeadSource> source, SelectorStage stage,
                                                HeadWatch watch) {
  return std::make_shared<WatchedHeads>(std::move(source), stage, std::move(watch));
}

}  // namespace tandem
