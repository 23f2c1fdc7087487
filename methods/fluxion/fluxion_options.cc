#include "methods/fluxion/fluxion_options.h"

#include <algorithm>
#include <array>

#include "engine/common/error.h"
#include "methods/common_options.h"

namespace tandem {

OptionSet FluxionOptions::bind() {
  OptionSet set("fluxion");
  set.value(
      "heads", "fixed, oracle, published, embedded, a shipped model, a file or a folder",
      "what says how much each head needs: bgt, slope and streaming for all; oracle: measured in the run by brute "
      "force over all KV, which is not counted as cost; published, for simulations: drawn from an assumed spread "
      "whose mean and streaming share are fitted to two times of the paper's figure 9, with slopes, and ratios to "
      "other errors and rules, as models/seed has them; or a predictor: the embedded model's, another shipped "
      "model's (seed), a file's, or of a folder the one for budgets",
      [this](const std::string& text) {
        heads = text;
        return !text.empty();
      },
      [this] { return heads; });
  set.choice(
      "budgets", budgets, {kBudgetPolicyNames.begin(), kBudgetPolicyNames.end()},
      "what the predictor was trained to call enough; with heads=FILE, that file's rule; of a folder, which one");
  set.number("tau", tau, 1e-6, 1,
             "heads=oracle, published: error that is enough, of the layer's largest output (budgets=output: of the "
             "head's own); a predictor has the one that it was trained for, and no other may be given");
  set.choice("line", line, {"measured", "cover"},
             "heads=oracle: the line through a head's budgets, each the least that is enough together with all larger "
             "ones: the published line, from single tokens with their slope, or the least line that is nowhere too "
             "low at 16 to 128 tokens");
  set.number("bgt", bgt, 0, 1, "fixed heads: share of the host's tokens that a head needs if it chooses single ones");
  set.number("slope", slope, -1, 1, "fixed heads: what a head needs more with every doubling of the block");
  set.number("streaming", streaming, 0, 1, "fixed heads: share of them that do with sinks and window alone");
  add_union_option(set, union_mode);
  set.choice("stage", stage, {"fixed16", "fixed32", "dynamic", "skip"},
             "block size: fixed, or the best per KV group; skip: and streaming heads stay on the device");
  set.choice("policy", policy, {"cpu-only", "uniform", "length", "priority"},
             "who attends to a KV group's part in host memory: the CPU; a fixed share of the groups, or of the "
             "sequences' tokens; or whoever is free, the largest first");
  set.choice(
      "guard", guard, {"no", "yes"},
      "priority: a side leaves a task that it would end later than the other one would end all that is left; needs a "
      "cpu_share between 0 and 1");
  set.ratio("cpu_share", cpu_share, 0, 1,
            "the CPU's share of the work under uniform and length, and for guard how fast it is beside the device");
  set.number_of("workers", workers, {0, 1, 2, 3, 4, 5, 6, 7, 8},
                "CPU workers that take tasks, each with its part of the threads; 0: one for every eight tasks of a "
                "layer, but two or more, and no more than the threads hold a group's query heads");
  set.tokens("sinks", sinks, "first tokens, kept on the device; rounded up to a page");
  set.tokens("window", window, "last prompt tokens, kept on the device; rounded up to a page");
  set.tokens("spill", spill,
             "new tokens that the device keeps beside the window before the oldest 128 go to host memory; 0: all");
  return set;
}

SelectorStage FluxionOptions::selector_stage() const {
  if (stage == "fixed16") return SelectorStage::fixed16;
  if (stage == "fixed32") return SelectorStage::fixed32;
  return stage == "dynamic" ? SelectorStage::dynamic : SelectorStage::skip;
}

SchedulePolicy FluxionOptions::schedule_policy() const {
  if (policy == "cpu-only") return SchedulePolicy::cpu_only;
  if (policy == "uniform") return SchedulePolicy::uniform;
  return policy == "length" ? SchedulePolicy::length : SchedulePolicy::priority;
}

BudgetPolicy FluxionOptions::budget_policy() const {
  const auto* name = std::find(kBudgetPolicyNames.begin(), kBudgetPolicyNames.end(), budgets);
  return static_cast<BudgetPolicy>(name - kBudgetPolicyNames.begin());
}

void FluxionOptions::check_guard() const {
  if (guard == "no") return;
  if (schedule_policy() != SchedulePolicy::priority) {
    throw_input_error(
        "Method fluxion, option 'guard': it is yes with policy={}, under which no side chooses its tasks: give "
        "policy=priority, or guard=no.",
        policy);
  }
  if (cpu_share > 0 && cpu_share < 1) return;
  throw_input_error(
      "Method fluxion, option 'guard': it is yes with cpu_share={}, which does not say how fast the CPU is beside the "
      "device: give a share between 0 and 1, or guard=no.",
      cpu_share);
}

void FluxionOptions::check_looked_at() const {
  check_heads();
  check_schedule();
}

void FluxionOptions::check_schedule() const {
  const FluxionOptions defaults;
  if (streaming != defaults.streaming && stage != "skip") {
    throw_input_error(
        "Method fluxion, option 'streaming': it changes nothing with stage={}, where streaming heads choose blocks "
        "like the others: leave it out, or give stage=skip.",
        stage);
  }
  const bool shared = policy == "uniform" || policy == "length" || guard == "yes";
  if (cpu_share != defaults.cpu_share && !shared) {
    throw_input_error(
        "Method fluxion, option 'cpu_share': it changes nothing with policy={}{}; it is for policy=uniform, "
        "policy=length and guard=yes: leave it out, or give one of these.",
        policy, policy == "priority" ? " and guard=no" : "");
  }
}

void FluxionOptions::check_heads() const {
  const FluxionOptions defaults;
  const bool predicted = heads != "fixed" && heads != "oracle" && heads != "published";
  struct Rule {
    const char* option;
    bool given, looked_at;
    const char* by;  // which heads look at it
  };
  const std::array<Rule, 6> rules = {{
      {"tau", tau != defaults.tau, heads != "fixed", "heads=oracle, heads=published or a predictor"},
      {"budgets", budgets != defaults.budgets, heads != "fixed", "heads=oracle, heads=published or a predictor"},
      {"line", line != defaults.line, heads == "oracle", "heads=oracle"},
      // The other sources fall back on fixed heads where they have nothing to say.
      {"bgt", bgt != defaults.bgt, heads != "published", "heads=fixed, heads=oracle or a predictor"},
      {"slope", slope != defaults.slope, heads != "published", "heads=fixed, heads=oracle or a predictor"},
      {"streaming", streaming != defaults.streaming, heads != "published", "heads=fixed, heads=oracle or a predictor"},
  }};
  for (const Rule& rule : rules) {
    if (!rule.given || rule.looked_at) continue;
    throw_input_error(
        "Method fluxion, option '{}': it changes nothing with heads={}{}; it is for {}: leave it out, or give other "
        "heads.",
        rule.option, heads, predicted ? ", a predictor" : "", rule.by);
  }
}

}  // namespace tandem
