#include <algorithm>
#include <vector>

#include "engine/common/error.h"
#include "engine/mechanisms/device_budget/device_budget.h"
#include "engine/mechanisms/survivors/survivors.h"
#include "engine/mechanisms/token_choice/token_choice.h"
#include "methods/baselines/baselines.h"
#include "methods/common_options.h"

namespace tandem {
namespace {

struct TovaOptions {
  TokenShare budget{0, 2048};
  std::string evict = "no";
  double device = 1;
  std::uint32_t look_ahead = 1;
  /// `shown`: without what means nothing where all KV is on the device.
  OptionSet bind(bool shown = false) {
    OptionSet set("tova");
    set.share("budget", budget,
              "tokens that a KV head attends, the step's own among them, or a share of the context; with evict=yes "
              "tokens that a layer keeps, the step's own on top, or a share of prompt + new tokens");
    set.choice("evict", evict, {"no", "yes"},
               "yes: `budget` tokens are kept per layer, and the one with the smallest weight is given up for good");
    if (shown && device == 1) return set;
    add_device_option(set, device, "and comes back for every layer: choosing reads every key");
    add_look_ahead_option(set, look_ahead);
    return set;
  }
  bool evicts() const { return evict == "yes"; }
  /// A step reads all of a layer, so that it matters little which part stays, as long as it is the same: the first one.
  DeviceShare share() const {
    return {device,
            {.eviction = Eviction::attention, .sinks = 0, .window = 0, .look_ahead = look_ahead},
            MassFrom::nothing};
  }
};

/// TOVA: the tokens with the largest scores for the current query, exactly: by scoring all of them, or with `evict` by
/// giving up the lightest one after each step.
class Tova : public Method {
 public:
  explicit Tova(TovaOptions options) : options_(std::move(options)) {}

  std::string spelled_out() const override {
    TovaOptions copy = options_;
    return copy.bind(true).spelled_out();
  }
  Needs needs(const ModelShape&) const override {
    return {.lossless = options_.budget.ratio >= 1,
            .last_queries = options_.evicts() ? 1u : 0u,
            .host_prompts = offloads(),
            .single_tokens = options_.evicts()};
  }

  void context_ready(SequenceState& sequence, Ops& ops) override {
    if (options_.evicts()) {
      sequence.method = ops.use<Survivors>().keep(sequence, {}, sizes(sequence));
      ops.drop(sequence, {0, sequence.tokens});
    } else {
      sequence.method = ops.use<TokenChoices>().make(sequence, most(sequence));
    }
    if (offloads()) ops.use<DeviceBudget>().open(sequence, options_.share());
  }

  void before_layer(const LayerContext& context, Ops& ops) override {
    if (offloads()) ops.use<DeviceBudget>().before_layer(context);
  }

  AttendPlan plan_attend(const LayerContext& context, Ops& ops) override {
    AttendPlan plan;
    std::vector<ChooseRequest> requests;
    for (const SequenceState* sequence : context.batch) {
      if (options_.evicts()) {
        ops.use<Survivors>().plan(context, *sequence, std::any_cast<SurvivorsRef>(sequence->method), plan);
        continue;
      }
      const std::uint32_t others = sequence->tokens - 1;
      const std::uint32_t keep = std::max(options_.budget.of(sequence->tokens), 1u) - 1;
      plan.items.push_back({.row = sequence->row, .kv = Ranges{{keep >= others ? 0 : others, sequence->tokens}}});
      if (keep < others && keep > 0)
        requests.push_back({sequence, std::any_cast<TokenChoiceRef>(sequence->method), others, keep,
                            offloads() ? ops.use<DeviceBudget>().ready() : Event{}});
    }
    if (!requests.empty()) {
      const std::vector<Tokens> chosen = ops.use<TokenChoices>().choose(context, requests);
      for (std::size_t i = 0; i < requests.size(); ++i)
        plan.items.push_back({.row = requests[i].sequence->row, .kv = chosen[i]});
    }
    if (offloads()) ops.use<DeviceBudget>().arrive(context, plan);
    return plan;
  }

  // Not after the step: a sequence that ends with it is not seen there.
  void after_layer(const LayerContext& context, Ops& ops) override {
    if (offloads()) ops.use<DeviceBudget>().after_layer(context);
    if (!options_.evicts() || context.layer + 1 < context.shape.layers) return;
    for (SequenceState* sequence : context.batch) {  // the set has its tokens
      if (sequence->tokens % kPageTokens == 0) ops.drop(*sequence, {sequence->tokens - kPageTokens, sequence->tokens});
    }
  }

  void after_step(const StepContext& context, Ops& ops) override {
    if (offloads()) ops.use<DeviceBudget>().after_step(context);
  }

  // A number of tokens that was cut down to the context grows with it, and so does the whole context; a smaller share
  // stays what it was.
  void goes_on(SequenceState& sequence, Ops& ops) override {
    if (offloads()) ops.use<DeviceBudget>().refit(sequence, options_.share());
    const bool grows =
        options_.budget.tokens > 0 ? options_.budget.tokens > sequence.tokens : options_.budget.ratio >= 1;
    if (!options_.evicts())
      ops.use<TokenChoices>().renew(sequence, std::any_cast<TokenChoiceRef>(sequence.method), most(sequence));
    else if (grows)
      ops.use<Survivors>().keep(sequence, std::any_cast<SurvivorsRef>(sequence.method), sizes(sequence));
  }

  AppendRequest before_append(SequenceState& sequence, Range, Ops& ops) override {
    if (offloads()) {
      ops.use<DeviceBudget>().refit(sequence, options_.share());
      return {.keeper = ops.use<DeviceBudget>().keeper()};
    }
    if (!options_.evicts()) return {};
    return {.older = ops.use<Survivors>().older(std::any_cast<SurvivorsRef>(sequence.method))};
  }

  void appended(SequenceState& sequence, Range tokens, Ops& ops) override {
    if (options_.evicts()) {
      ops.use<Survivors>().keep(sequence, std::any_cast<SurvivorsRef>(sequence.method), sizes(sequence));
      ops.drop(sequence, {tokens.begin / kPageTokens * kPageTokens, sequence.tokens});
    } else {  // a longer context may choose more
      ops.use<TokenChoices>().renew(sequence, std::any_cast<TokenChoiceRef>(sequence.method), most(sequence));
    }
    if (offloads()) ops.use<DeviceBudget>().refit(sequence, options_.share());
  }

 private:
  bool offloads() const { return options_.device < 1; }
  std::uint32_t most(const SequenceState& sequence) const {
    return std::clamp(options_.budget.of(sequence.max_tokens), 1u, std::max(sequence.max_tokens, 1u));
  }
  /// The newest token is in the window, so that it is not the one that leaves; the original's may be.
  SurvivorsRequest sizes(const SequenceState& sequence) const { return {most(sequence) - 1, 1, true}; }

  TovaOptions options_;
};

}  // namespace

MethodInfo tova_info() {
  MethodInfo info;
  info.name = "tova";
  info.summary = "the tokens that the current query scores best, exactly";
  info.description =
      "All KV stays on the device. Each step reads every key, scores each token with the true query and attends the "
      "best ones, per KV head by the best of its query heads; choosing is on the critical path. With device=SHARE only "
      "that "
      "share of KV stays on the device, and every layer comes back for every choice. Budget: tokens per KV "
      "head, the step's own included (with evict=yes it comes on top). New tokens: appended on the device. With "
      "evict=yes a layer keeps `budget` tokens, the same for all its heads, chosen after the prompt by the last "
      "prefilled query (the last prompt token is the first step); a step attends them and its own, then gives up the "
      "token with the smallest weight, summed over all heads, as in "
      "the original; but the newest token always stays, unlike the original's.";
  info.source = "Oren et al. 2024, TOVA (arXiv 2401.06104), as AsyncSpade compares with it";
  info.budget = "tokens-attended";
  info.budget_options = {{.option = "budget", .step = 4, .turns_device = false},
                         {.option = "budget", .step = 4, .where = "evict", .is = "yes"}};
  info.at_short_contexts = "budget=512";
  TovaOptions defaults;
  info.options = defaults.bind().describe();
  info.make = [](const MethodSpec& spec) -> std::unique_ptr<Method> {
    TovaOptions options;
    options.bind().parse(spec);
    if (options.evicts() && options.device < 1)
      throw_input_error(
          "Method 'tova' has 'evict=yes', which keeps `budget` tokens, and 'device={}': give one of them.",
          options.device);
    return std::make_unique<Tova>(options);
  };
  return info;
}

}  // namespace tandem
