#include <vector>

#include "methods/baselines/baselines.h"
#include "methods/baselines/fixed_budget.h"

namespace tandem {
namespace {

/// Fluxion's baseline "w/o Fluxion": sinks, window and new tokens on the device with dense attention; the rest in host
/// memory, where each step scores all blocks and attends to a fixed share of them, the same for every head.
class HybridFixed : public Method {
 public:
  explicit HybridFixed(FixedBudgetOptions options) : options_(std::move(options)) {}

  std::string spelled_out() const override {
    FixedBudgetOptions copy = options_;
    return copy.bind("hybrid-fixed").spelled_out();
  }
  Needs needs(const ModelShape&) const override { return {.lossless = options_.lossless()}; }

  void context_ready(SequenceState& sequence, Ops& ops) override {
    sequence.method = place_host_region(sequence, options_, Side::host, ops);
  }

  AttendPlan plan_attend(const LayerContext& context, Ops& ops) override {
    std::vector<ScoreRequest> requests;
    AttendPlan plan = plan_near<HostRegion>(context, requests);
    const std::vector<Blocks> selections = ops.score_topk(context, requests);
    for (std::size_t i = 0; i < requests.size(); ++i) {
      plan.items.push_back({.row = requests[i].sequence->row, .kv = selections[i], .own_only = options_.own_only()});
    }
    return plan;
  }

 private:
  FixedBudgetOptions options_;
};

}  // namespace

MethodInfo hybrid_fixed_info() {
  MethodInfo info;
  info.name = "hybrid-fixed";
  info.summary = "sinks and window on the device, a fixed share of the rest attended on the CPU";
  info.description =
      "After the prefill, everything between the sinks and the window moves to host memory with digests (per channel "
      "min and max of a block's keys, or with digest=mean their mean). Each step the CPU scores all blocks with the "
      "true query, takes the best "
      "ceil(budget x host tokens / block) per query head, attends to them and returns partial results that the device "
      "merges "
      "with its own. Budget: share of the host-resident tokens; sinks, window and new tokens are on top. New tokens: "
      "stay on "
      "the device.";
  info.source = "Fluxion's baseline 'w/o Fluxion' (papers: Fluxion, section 8.1); digests: Quest (arXiv 2406.10774)";
  info.budget = "share-of-host-tokens";
  info.budget_options = budget_options_of_fixed();
  FixedBudgetOptions defaults;
  info.options = defaults.bind("hybrid-fixed").describe();
  info.make = [](const MethodSpec& spec) -> std::unique_ptr<Method> {
    FixedBudgetOptions options;
    options.bind("hybrid-fixed").parse(spec);
    return std::make_unique<HybridFixed>(options);
  };
  return info;
}

}  // namespace tandem
