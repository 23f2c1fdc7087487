#include "methods/hgca/hgca.h"

#include <algorithm>

#include "engine/mechanisms/salient_tokens/salient_tokens.h"

namespace tandem {
namespace {

struct HgcaOptions {
  TokenShare device_kv{0.25, 0};
  std::uint32_t block = 32, obs = 64, dense_layers = 0;
  double alpha = 0.1, beta = 1;
  std::string pad = "masked";
  OptionSet bind() {
    OptionSet set("hgca");
    set.share("device_kv", device_kv,
              "room for KV on the device: tokens, or a share of prompt + new tokens; at least two blocks");
    set.number_of("block", block, {16, 32, 64, 128}, "tokens that leave the device together");
    set.number("alpha", alpha, 0, 1, "share of a step's attention weight in a token's moving average");
    set.number("beta", beta, 0, 1e6, "a token is salient above beta times the mean weight; 0: all are");
    set.number_of("obs", obs, {1, 2, 4, 8, 16, 32, 64}, "last prefilled queries that averages start from");
    set.count("dense_layers", dense_layers, "layers",
              "first layers in which the CPU attends to all tokens that left the device, whatever beta says");
    set.choice("pad", pad, {"masked", "attended"},
               "whether a head attends only the tokens it found salient, or all of its group's");
    return set;
  }
};

struct HgcaState {
  std::uint32_t begin = 0;     // of the window: everything before it is on the host
  std::uint32_t capacity = 0;  // of the window, in tokens
  AverageRef average;
  TokenSetRef salient;
};

/// HGCA: dense attention over a window on the device, in parallel with attention over the salient ones of the tokens
/// that left it on the CPU (papers: HGCA, algorithms 1 and 2).
class Hgca : public Method {
 public:
  explicit Hgca(HgcaOptions options) : options_(std::move(options)) {}

  std::string spelled_out() const override {
    HgcaOptions copy = options_;
    return copy.bind().spelled_out();
  }
  Needs needs(const ModelShape& shape) const override {
    const bool lossless = options_.beta == 0 || options_.dense_layers >= shape.layers;
    return {.lossless = lossless, .last_queries = options_.obs};
  }

  void context_ready(SequenceState& sequence, Ops& ops) override {
    HgcaState state;
    state.capacity = window_capacity(sequence.max_tokens + 1);
    state.average = ops.use<AttentionAverages>().make(sequence, state.capacity, static_cast<float>(options_.alpha));
    state.salient = ops.use<SalientTokens>().make(sequence);
    prompt_read(sequence, state, {0, sequence.tokens}, ops);
    sequence.method = state;
  }

  AttendPlan plan_attend(const LayerContext& context, Ops& ops) override {
    AttendPlan plan;
    for (const SequenceState* sequence : context.batch) {
      const auto& state = std::any_cast<const HgcaState&>(sequence->method);
      plan.items.push_back({.row = sequence->row,
                            .kv = Ranges{{state.begin, sequence->tokens}},
                            .weights = ops.use<AttentionAverages>().weights_to(state.average)});
      if (state.begin == 0) continue;
      plan.items.push_back({.row = sequence->row,
                            .kv = ops.use<SalientTokens>().kv(state.salient, context.layer),
                            .own_only = options_.pad == "masked"});
    }
    return plan;
  }

  void after_layer(const LayerContext& context, Ops& ops) override {
    for (SequenceState* sequence : context.batch) {
      move_oldest(*sequence, context.layer, ops);
      auto& state = std::any_cast<HgcaState&>(sequence->method);
      if (context.layer + 1 == context.shape.layers)
        state.begin += leaving(sequence->tokens - state.begin, state.capacity);
    }
  }

  AppendRequest before_append(SequenceState& sequence, Range, Ops& ops) override {
    auto& state = std::any_cast<HgcaState&>(sequence.method);
    grow(sequence, state, ops);
    return {.weights = ops.use<AttentionAverages>().get(state.average).left};
  }

  void goes_on(SequenceState& sequence, Ops& ops) override {
    auto& state = std::any_cast<HgcaState&>(sequence.method);
    grow(sequence, state, ops);
    ops.use<SalientTokens>().extend(sequence, state.salient);
  }

  void appended(SequenceState& sequence, Range tokens, Ops& ops) override {
    auto& state = std::any_cast<HgcaState&>(sequence.method);
    ops.use<SalientTokens>().renew(sequence, state.salient);
    if (state.begin > 0) keep(sequence, state, {0, state.begin}, state.begin, ops);
    prompt_read(sequence, state, tokens, ops);
  }

 private:
  /// Of the window in a context of `whole` tokens, whole blocks; a block more than all of them is never full.
  std::uint32_t window_capacity(std::uint32_t whole) const {
    const std::uint32_t tokens = std::min(options_.device_kv.of(whole), whole + options_.block);
    return std::max((tokens + options_.block - 1) / options_.block, 2u) * options_.block;
  }
  /// A share is of the longer context now, and a number of tokens may have been cut down to the shorter one. Less would
  /// be asked of a shorter turn: what the window holds stays.
  void grow(SequenceState& sequence, HgcaState& state, Ops& ops) const {
    state.capacity = std::max(state.capacity, window_capacity(sequence.max_tokens + 1));
    ops.use<AttentionAverages>().extend(sequence, state.average, state.capacity);
  }
  /// Algorithm 1, line 11, with its sign mended: whole blocks until the window is below its capacity.
  std::uint32_t leaving(std::uint32_t window, std::uint32_t capacity) const {
    if (window < capacity) return 0;
    return (window - capacity + options_.block) / options_.block * options_.block;
  }
  /// A prompt's tokens, the first's or a later one's, are on the device behind the window that was there: averages
  /// start anew, and what is too much leaves, judged by weights of the softmax over all that the device held.
  void prompt_read(SequenceState& sequence, HgcaState& state, Range prompt, Ops& ops) const {
    const std::uint32_t held = sequence.tokens - state.begin, leave = leaving(held, state.capacity);
    const Range tokens{state.begin, state.begin + leave};
    ops.use<AttentionAverages>().observe_prompt(sequence,
                                                {state.average, prompt, tokens.begin, tokens.end, options_.obs});
    if (leave == 0) return;
    ops.move_to_host(sequence, tokens);
    keep(sequence, state, tokens, held, ops);
    state.begin = tokens.end;
  }
  /// One layer of what leaves the window in a step, with the choice of what the CPU attends to.
  void move_oldest(SequenceState& sequence, std::uint32_t layer, Ops& ops) const {
    const auto& state = std::any_cast<const HgcaState&>(sequence.method);
    const std::uint32_t window = sequence.tokens - state.begin, leave = leaving(window, state.capacity);
    if (leave == 0) return;
    const Range tokens{state.begin, state.begin + leave};
    ops.move_to_host(sequence, tokens, layer, ops.use<AttentionAverages>().companion(state.average));
    keep(sequence, layer, state, tokens, window, ops);
  }
  void keep(SequenceState& sequence, std::uint32_t layer, const HgcaState& state, Range tokens,
            std::uint32_t softmax_tokens, Ops& ops) const {
    const double beta = layer < options_.dense_layers ? 0 : options_.beta;
    ops.use<SalientTokens>().keep(sequence, layer, {state.salient, state.average, tokens, beta, softmax_tokens});
  }
  void keep(SequenceState& sequence, const HgcaState& state, Range tokens, std::uint32_t softmax_tokens,
            Ops& ops) const {
    for (std::uint32_t layer = 0; layer < ops.shape().layers; ++layer) {
      keep(sequence, layer, state, tokens, softmax_tokens, ops);
    }
  }

  HgcaOptions options_;
};

}  // namespace

MethodInfo hgca_info() {
  MethodInfo info;
  info.name = "hgca";
  info.summary = "a window on the device, the salient ones of older tokens attended on the CPU, chosen once per token";
  info.description =
      "The newest tokens stay on the device with dense attention; each has a moving average of its attention weight "
      "per query head. When the window is full, its oldest blocks move to host memory, and the tokens whose average "
      "exceeds beta / (tokens of the softmax) for a head are packed for the CPU, which attends to them from then on; "
      "what was not salient stays in host memory, unattended. After a prompt, the first or a later one of a "
      "conversation, the averages on the device are the mean weights under its last obs queries. Budget: device_kv "
      "counts the window; the salient tokens are on top, as many as beta lets through, and all of the first "
      "dense_layers layers. New tokens: appended on the device. No sinks.";
  info.source = "Deng et al., HGCA (papers: HGCA, sections 3.2 and 3.3, algorithms 1 and 2)";
  info.budget = "device-window-of-all-tokens";
  info.budget_options = {{.option = "device_kv", .scale = BudgetOption::Scale::share}};
  HgcaOptions defaults;
  info.options = defaults.bind().describe();
  info.make = [](const MethodSpec& spec) -> std::unique_ptr<Method> {
    HgcaOptions options;
    options.bind().parse(spec);
    return std::make_unique<Hgca>(options);
  };
  return info;
}

}  // namespace tandem
