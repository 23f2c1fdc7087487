#include <algorithm>
#include <vector>

#include "methods/baselines/baselines.h"

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
  std::uint32_t end = 0;   // tokens before it are in host memory, in every layer
  std::uint32_t room = 0;  // of the staging, in tokens
  StagingRef staging;
  std::vector<FetchedRef> fetched;  // [layer % parts]
};

/// All KV in host memory; each step streams it over the link, layer by layer, and attends to all of it on the device.
class FullOffload : public Method {
 public:
  explicit FullOffload(const FullOffloadOptions& options) : options_(options) {}

  std::string spelled_out() const override {
    FullOffloadOptions copy = options_;
    return copy.bind().spelled_out();
  }
  Needs needs(const ModelShape&) const override { return {.lossless = true, .host_tier = true}; }

  void context_ready(SequenceState& sequence, Ops& ops) override {
    OffloadState state;
    state.fetched.resize(parts(ops.shape()));
    state.room = whole_pages(sequence.max_tokens);
    state.staging = ops.make_staging(sequence, state.room, parts(ops.shape()));
    state.end = whole_pages(sequence.tokens);
    if (state.end > 0) ops.move_to_host(sequence, {0, state.end});
    sequence.method = std::move(state);
  }

  void before_layer(const LayerContext& context, Ops& ops) override {
    // A step fetches for itself only: whether there is a next one, its token decides.
    if (context.layer == 0) {
      for (SequenceState* sequence : context.batch) {
        auto& state = state_of(*sequence);
        if (state.end <= state.room) continue;  // a session that goes on
        state.room = whole_pages(std::max(sequence->max_tokens, sequence->tokens));
        ops.renew_staging(*sequence, state.staging, state.room);
      }
      for (std::uint32_t layer = 0; layer < parts(context.shape); ++layer) fetch(context, layer, ops);
    } else if (context.layer + options_.look_ahead < context.shape.layers) {
      fetch(context, context.layer + options_.look_ahead, ops);
    }
  }

  AttendPlan plan_attend(const LayerContext& context, Ops&) override {
    AttendPlan plan;
    for (SequenceState* sequence : context.batch) {
      const OffloadState& state = state_of(*sequence);
      if (state.end > 0)
        plan.items.push_back({.row = sequence->row, .pages = {state.fetched[context.layer % parts(context.shape)]}});
      plan.items.push_back({.row = sequence->row, .pages = {StaticTokens{{{state.end, sequence->tokens}}}}});
    }
    return plan;
  }

  void after_layer(const LayerContext& context, Ops& ops) override {
    for (SequenceState* sequence : context.batch) {
      OffloadState& state = state_of(*sequence);
      const std::uint32_t end = whole_pages(sequence->tokens);
      if (end == state.end) continue;
      ops.move_to_host(*sequence, {state.end, end}, context.layer, {});
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
  std::uint32_t parts(const ModelShape& shape) const { return std::min(options_.look_ahead, shape.layers - 1) + 1; }

  void fetch(const LayerContext& context, std::uint32_t layer, Ops& ops) const {
    std::vector<FetchRequest> requests;
    std::vector<OffloadState*> states;
    for (SequenceState* sequence : context.batch) {
      OffloadState& state = state_of(*sequence);
      if (state.end == 0) continue;
      requests.push_back({sequence, state.staging, StaticTokens{{{0, state.end}}}});
      states.push_back(&state);
    }
    if (requests.empty()) return;
    const std::vector<FetchedRef> fetched = ops.fetch(layer, requests);
    for (std::size_t i = 0; i < states.size(); ++i) states[i]->fetched[layer % parts(context.shape)] = fetched[i];
  }

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
