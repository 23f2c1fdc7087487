#include <algorithm>
#include <vector>

#include "methods/baselines/baselines.h"
#include "methods/baselines/layer_stream.h"

namespace tandem {
namespace {

struct FullOffloadOptions {
  std::uint32_t look_ahead = 1;
  OptionSet bind() {
    OptionSet set("full-offload");
    set.count("look_ahead", look_ahead, "layers",
              "layers whose KV is on its way while a layer computes; the device has room for one more");
    return set;
  }
};

struct OffloadState {
  std::uint32_t end = 0;  // tokens before it are in host memory, in every layer
  LayerStream stream;
};

/// All KV in host memory; each step streams it over the link, layer by layer, and attends to all of it on the device.
class FullOffload : public Method {
 public:
  explicit FullOffload(const FullOffloadOptions& options) : options_(options) {}

  std::string spelled_out() const override {
    FullOffloadOptions copy = options_;
    return copy.bind().spelled_out();
  }
  Needs needs(const ModelShape&) const override { return {.lossless = true}; }

  void context_ready(SequenceState& sequence, Ops& ops) override {
    OffloadState state;
    state.stream =
        open_layer_stream(sequence, std::min(options_.look_ahead, ops.shape().layers - 1) + 1, kPageTokens, ops);
    state.end = whole_pages(sequence.tokens);
    if (state.end > 0) ops.move_to_host(sequence, {0, state.end});
    sequence.method = std::move(state);
  }

  void before_layer(const LayerContext& context, Ops& ops) override {
    std::vector<StreamedRow> rows;
    for (SequenceState* sequence : context.batch) {
      OffloadState& state = state_of(*sequence);
      if (state.end > 0) rows.push_back({sequence, &state.stream, state.end});
    }
    stream_layers(context, context.shape.layers, rows, ops);
  }

  AttendPlan plan_attend(const LayerContext& context, Ops&) override {
    AttendPlan plan;
    for (SequenceState* sequence : context.batch) {
      const OffloadState& state = state_of(*sequence);
      if (state.end > 0) plan.items.push_back({.row = sequence->row, .kv = state.stream.of(context.layer)});
      plan.items.push_back({.row = sequence->row, .kv = Ranges{{state.end, sequence->tokens}}});
    }
    return plan;
  }

  void after_layer(const LayerContext& context, Ops& ops) override {
    for (SequenceState* sequence : context.batch) {
      OffloadState& state = state_of(*sequence);
      const std::uint32_t end = whole_pages(sequence->tokens);
      if (end == state.end) continue;
      ops.move_to_host(*sequence, {state.end, end}, context.layer);
      if (context.layer + 1 == context.shape.layers) state.end = end;
    }
  }

  void appended(SequenceState& sequence, Range, Ops& ops) override {
    OffloadState& state = state_of(sequence);
    const std::uint32_t end = whole_pages(sequence.tokens);
    if (end > state.end) ops.move_to_host(sequence, {state.end, end});
    state.end = end;
  }

 private:
  static std::uint32_t whole_pages(std::uint32_t tokens) { return tokens / kPageTokens * kPageTokens; }
  static OffloadState& state_of(SequenceState& sequence) { return std::any_cast<OffloadState&>(sequence.method); }
  FullOffloadOptions options_;
};

}  // namespace

MethodInfo full_offload_info() {
  MethodInfo info;
  info.name = "full-offload";
  info.summary = "all KV in host memory, streamed over the link layer by layer, dense attention on the device";
  info.description =
      "After the prefill all whole pages move to host memory. Each step copies them to the device again, layer by "
      "layer and look_ahead layers ahead of use, and attends to everything there. Lossless. New tokens: on the device "
      "until their page is full, then in host memory.";
  info.source = "Sheng et al. 2023, FlexGen (arXiv 2303.06865), with exact attention and weights on the device";
  FullOffloadOptions defaults;
  info.options = defaults.bind().describe();
  info.make = [](const MethodSpec& spec) -> std::unique_ptr<Method> {
    FullOffloadOptions options;
    options.bind().parse(spec);
    return std::make_unique<FullOffload>(options);
  };
  return info;
}

}  // namespace tandem
