#include "methods/freekv/freekv.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/common/error.h"
#include "engine/mechanisms/query_drift/query_drift.h"
#include "engine/mechanisms/residency/residency.h"
#include "methods/common_options.h"

namespace tandem {
namespace {

struct FreeKvOptions {
  std::uint32_t budget = 2048, block = 32, sinks = 512, window = 512, dense_layers = 1;
  double tau = 0.8;
  std::string reduce = "softmax_mean", digest = "bounds";
  OptionSet bind() {
    OptionSet set("freekv");
    set.tokens(
        "budget", budget,
        "tokens that a KV head attends, whole blocks, rounded down: sinks, window and the best others; the newest, "
        "partly filled block is on top");
    set.number_of("block", block, {16, 32, 64, 128}, "tokens that are chosen together");
    set.tokens(
        "sinks", sinks,
        "first tokens that never leave the device, rounded up to whole blocks, and a quarter of the budget at most");
    set.tokens(
        "window", window,
        "most recent tokens that stay on the device, rounded up to whole blocks, and a quarter of the budget at most");
    set.ratio(
        "tau", tau, 0, 1,
        "a KV head whose queries' mean cosine to those of the step before is below it attends this step's choice; "
        "the authors' are 0.8 for long inputs and 0.9 for long outputs");
    set.count("dense_layers", dense_layers, "layers", "first layers that keep all KV on the device; the authors' is 1");
    set.choice(
        "reduce", reduce, {"softmax_mean", "mean", "max"},
        "a block's score for a KV head, from those of its query heads; the authors' accuracy code takes the mean "
        "of softmaxes, their latency code the mean");
    add_digest_option(set, digest);
    return set;
  }
  std::uint32_t whole(std::uint32_t tokens) const { return (tokens + block - 1) / block * block; }
  std::uint32_t most_near() const { return whole(budget / 4); }
  std::uint32_t sink_tokens() const { return std::min(whole(sinks), most_near()); }
  std::uint32_t window_tokens() const { return std::min(whole(window), most_near()); }
  std::uint32_t slots() const { return (budget - sink_tokens() - window_tokens()) / block; }
  /// No more than a context of `tokens` has blocks for.
  std::uint32_t slots(std::uint32_t tokens) const {
    const std::uint32_t near = sink_tokens() + window_tokens();
    return std::min(slots(), std::max(tokens - std::min(near, tokens), block) / block);
  }
  Reduce reduction() const {
    return reduce == "max" ? Reduce::max : reduce == "mean" ? Reduce::mean : Reduce::softmax_mean;
  }
};

struct FreeKvState {
  ResidentRef residents;
  DriftRef drift;
  std::uint32_t slots = 0;  // that both have room for
};

/// FreeKV: a step attends blocks that the step before has chosen, and brings its own choice to the device meanwhile; KV
/// heads whose queries have moved far wait for their own (arXiv 2505.13109).
class FreeKv : public Method {
 public:
  explicit FreeKv(FreeKvOptions options) : options_(std::move(options)) {}

  std::string spelled_out() const override {
    FreeKvOptions copy = options_;
    return copy.bind().spelled_out();
  }
  Needs needs(const ModelShape& shape) const override {
    const bool all = options_.dense_layers >= shape.layers;
    return {.lossless = all, .last_queries = all ? 0u : 1u};
  }

  void context_ready(SequenceState& sequence, Ops& ops) override {
    if (options_.dense_layers >= ops.shape().layers) return;
    const std::uint32_t slots = options_.slots(sequence.max_tokens);
    const ResidentRef residents = ops.use<Residency>().keep(sequence, {.sinks = options_.sink_tokens(),
                                                                       .block = options_.block,
                                                                       .slots = slots,
                                                                       .per_kv_head = true,
                                                                       .digests = digest_kind_of(options_.digest),
                                                                       .window = options_.window_tokens(),
                                                                       .first_layer = options_.dense_layers,
                                                                       .reduce = options_.reduction()});
    sequence.method = FreeKvState{residents, ops.use<QueryDrift>().open(sequence, slots), slots};
  }

  AttendPlan plan_attend(const LayerContext& context, Ops& ops) override {
    AttendPlan plan;
    later_ = {};
    if (context.layer < options_.dense_layers) {
      for (const SequenceState* sequence : context.batch)
        plan.items.push_back({.row = sequence->row, .kv = Ranges{{0, sequence->tokens}}});
      return plan;
    }
    std::vector<ResidentRef> sets;
    std::vector<DriftRef> drifts;
    for (const SequenceState* sequence : context.batch) {
      sets.push_back(state(*sequence).residents);
      drifts.push_back(state(*sequence).drift);
    }
    const SplitRef split = ops.use<Residency>().split(context, ops.layer_query(context), sets);
    PartedSplit parted = ops.use<QueryDrift>().part(context, split, drifts, static_cast<float>(options_.tau));
    const Event there = ops.use<Residency>().recall(context, parted.now, split.rows);
    later_ = std::move(parted.later);
    for (const SequenceState* sequence : context.batch) {
      const std::uint32_t window = window_begin(*sequence), sinks = options_.sink_tokens();
      plan.items.push_back({.row = sequence->row, .kv = Ranges::around({sinks, window}, sequence->tokens)});
      if (window <= sinks) continue;
      Packed residents = ops.use<Residency>().kv(state(*sequence).residents, context.layer, false);
      residents.ready = there;
      plan.items.push_back({.row = sequence->row, .kv = std::move(residents)});
    }
    return plan;
  }

  void after_layer(const LayerContext& context, Ops& ops) override {
    if (context.layer < options_.dense_layers) return;
    if (!later_.rows.empty()) ops.use<Residency>().recall(context, later_, later_.rows);
    for (SequenceState* sequence : context.batch) {
      const std::uint32_t left = sequence->tokens - std::min(options_.window_tokens(), sequence->tokens);
      if (left % options_.block == 0 && left > options_.sink_tokens())
        ops.use<Residency>().block_filled(*sequence, state(*sequence).residents, context.layer);
    }
  }

  void goes_on(SequenceState& sequence, Ops& ops) override {
    if (options_.dense_layers >= ops.shape().layers) return;
    const std::uint32_t slots = options_.slots(sequence.max_tokens);
    ops.use<Residency>().extend(sequence, state(sequence).residents, slots);
    if (slots != state(sequence).slots) ops.use<QueryDrift>().renew(sequence, state(sequence).drift, slots);
    state(sequence).slots = slots;
  }

  void appended(SequenceState& sequence, Range, Ops& ops) override {
    if (options_.dense_layers >= ops.shape().layers) return;
    const std::uint32_t slots = options_.slots(sequence.max_tokens);
    ops.use<Residency>().renew(sequence, state(sequence).residents, slots);
    ops.use<QueryDrift>().renew(sequence, state(sequence).drift, slots);
    state(sequence).slots = slots;
  }

 private:
  static FreeKvState& state(SequenceState& sequence) { return std::any_cast<FreeKvState&>(sequence.method); }
  static const FreeKvState& state(const SequenceState& sequence) {
    return std::any_cast<const FreeKvState&>(sequence.method);
  }
  /// First token behind the blocks that can be chosen, in a step: the step's own token is behind it.
  std::uint32_t window_begin(const SequenceState& sequence) const {
    const std::uint32_t before = sequence.tokens - 1, window = options_.window_tokens();
    return (before - std::min(window, before)) / options_.block * options_.block;
  }

  FreeKvOptions options_;
  SplitRef later_;  // of the layer that runs: what its other heads miss
};

void check(const FreeKvOptions& options) {
  const std::uint32_t least = options.sink_tokens() + options.window_tokens() + options.block;
  if (options.budget < least) {
    throw_input_error(
        "Option 'budget' of method 'freekv' is {} tokens: the sinks ({}), the window ({}) and one block of {} need {}.",
        options.budget, options.sink_tokens(), options.window_tokens(), options.block, least);
  }
}

}  // namespace

MethodInfo freekv_info() {
  MethodInfo info;
  info.name = "freekv";
  info.summary = "blocks chosen by the previous step's query, fetched while it ran; corrected where queries move";
  info.description =
      "All blocks between the sinks and the window are in host memory; sinks, window, digests and, per KV head, the "
      "blocks that were chosen last are on the device. Each step chooses by its true query. A KV head whose queries "
      "are "
      "like those of the step before (mean cosine at least `tau`) attends what that step has chosen, and its own "
      "choice "
      "comes to the device while the step goes on; any other head, and every head in a sequence's first step, waits "
      "for "
      "its own. The first `dense_layers` keep all KV on the device. Budget: tokens per KV head in the other layers; "
      "sinks "
      "and window count inside it. New tokens: on the device until they leave the window by whole blocks; then in host "
      "memory, and resident once they are chosen. A new prompt in a session chooses the residents anew by its last "
      "prefilled query.";
  info.source = "FreeKV (Liu et al., arXiv 2505.13109) and its code (rooikeee/FreeKV 074f14d)";
  info.budget = "tokens-per-kv-head";
  info.budget_options = {{.option = "budget", .step = 32, .least = 128}};
  info.at_short_contexts = "budget=512";
  FreeKvOptions defaults;
  info.options = defaults.bind().describe();
  info.make = [](const MethodSpec& spec) -> std::unique_ptr<Method> {
    FreeKvOptions options;
    options.bind().parse(spec);
    check(options);
    return std::make_unique<FreeKv>(options);
  };
  return info;
}

}  // namespace tandem
