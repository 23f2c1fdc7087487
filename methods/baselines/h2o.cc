#include <algorithm>
#include <cmath>

#include "engine/mechanisms/survivors/survivors.h"
#include "methods/baselines/baselines.h"

namespace tandem {
namespace {

struct H2oOptions {
  TokenShare budget{0.2, 0};
  double heavy = 0.5;
  OptionSet bind() {
    OptionSet set("h2o");
    set.share("budget", budget, "tokens that each KV head keeps, or a share of prompt + new tokens");
    set.number("heavy", heavy, 0, 1, "share of the budget that is kept for its attention mass; the rest is the window");
    return set;
  }
};

struct H2oState {
  SurvivorsRef set;
  SurvivorsRequest sizes;  // that it was made for
};

/// H2O: each KV head keeps its heavy hitters, the tokens that gathered most attention, and the most recent tokens;
/// everything else is given up for good.
class H2o : public Method {
 public:
  explicit H2o(const H2oOptions& options) : options_(options) {}

  std::string spelled_out() const override {
    H2oOptions copy = options_;
    return copy.bind().spelled_out();
  }
  Needs needs(const ModelShape&) const override {
    return {.lossless = options_.budget.ratio >= 1, .column_sums = true, .single_tokens = true};
  }

  void context_ready(SequenceState& sequence, Ops& ops) override {
    const SurvivorsRequest wanted = sizes(sequence);
    sequence.method = H2oState{ops.use<Survivors>().keep(sequence, {}, wanted), wanted};
    ops.drop(sequence, {0, sequence.tokens});
  }

  AttendPlan plan_attend(const LayerContext& context, Ops& ops) override {
    AttendPlan plan;
    for (const SequenceState* sequence : context.batch) {
      const SurvivorsRef set = std::any_cast<const H2oState&>(sequence->method).set;
      ops.use<Survivors>().plan(context, *sequence, set, plan);
    }
    return plan;
  }

  // Not after the step: a sequence that ends with it is not seen there.
  void after_layer(const LayerContext& context, Ops& ops) override {
    if (context.layer + 1 < context.shape.layers) return;
    for (SequenceState* sequence : context.batch) {  // the set has its tokens
      if (sequence->tokens % kPageTokens == 0) ops.drop(*sequence, {sequence->tokens - kPageTokens, sequence->tokens});
    }
  }

  AppendRequest before_append(SequenceState& sequence, Range, Ops& ops) override {
    return {.older = ops.use<Survivors>().older(std::any_cast<H2oState&>(sequence.method).set)};
  }

  // A number of tokens that was cut down to the context grows with it, and so does the whole context; a smaller share
  // stays what it was.
  void goes_on(SequenceState& sequence, Ops& ops) override {
    const SurvivorsRequest before = std::any_cast<H2oState&>(sequence.method).sizes, wanted = sizes(sequence);
    const bool grows = options_.budget.tokens > 0 || options_.budget.ratio >= 1;
    if (grows && wanted.heavy + wanted.window > before.heavy + before.window) keep(sequence, wanted, ops);
  }

  void appended(SequenceState& sequence, Range tokens, Ops& ops) override {
    keep(sequence, sizes(sequence), ops);
    ops.drop(sequence, {tokens.begin / kPageTokens * kPageTokens, sequence.tokens});
  }

 private:
  static void keep(SequenceState& sequence, const SurvivorsRequest& wanted, Ops& ops) {
    auto& state = std::any_cast<H2oState&>(sequence.method);
    ops.use<Survivors>().keep(sequence, state.set, wanted);
    state.sizes = wanted;
  }
  SurvivorsRequest sizes(const SequenceState& sequence) const {
    const std::uint32_t most = std::max(sequence.max_tokens, 1u);
    const std::uint32_t all = std::clamp(options_.budget.of(most), 1u, most);
    const auto heavy = std::min(static_cast<std::uint32_t>(std::lround(options_.heavy * all)), all - 1);
    return {heavy, all - heavy};
  }

  H2oOptions options_;
};

}  // namespace

MethodInfo h2o_info() {
  MethodInfo info;
  info.name = "h2o";
  info.summary = "heavy hitters by attention mass and a window; everything else is given up";
  info.description =
      "Each KV head keeps, on the device, the tokens that gathered most attention mass (summed over its query heads "
      "and "
      "all queries, the prompt's included) and the most recent ones, in a set whose size does not change. Budget: "
      "tokens in the set; the step's own token is on top until the step ends. New tokens: enter the window; the token "
      "that leaves it competes with the heavy hitters, and the lightest of these is given up for good.";
  info.source = "Zhang et al. 2023, H2O (arXiv 2306.14048)";
  info.budget = "tokens-kept";
  info.budget_options = {{.option = "budget", .step = 4}};
  H2oOptions defaults;
  info.options = defaults.bind().describe();
  info.make = [](const MethodSpec& spec) -> std::unique_ptr<Method> {
    H2oOptions options;
    options.bind().parse(spec);
    return std::make_unique<H2o>(options);
  };
  return info;
}

}  // namespace tandem
