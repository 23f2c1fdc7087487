#include <algorithm>
#include <vector>

#include "methods/baselines/baselines.h"
#include "methods/baselines/fixed_budget.h"

namespace tandem {
namespace {

struct FetchRegion : HostRegion {
  StagingRef staging;
};

/// Fluxion's baseline "GPU-only": the placement and the budget of hybrid-fixed, but the device scores the blocks and
/// reads the chosen ones over the link, anew in every step.
class GpuFetch : public Method {
 public:
  explicit GpuFetch(FixedBudgetOptions options) : options_(std::move(options)) {}

  std::string spelled_out() const override {
    FixedBudgetOptions copy = options_;
    return copy.bind("gpu-fetch").spelled_out();
  }
  Needs needs(const ModelShape&) const override { return {.lossless = options_.lossless()}; }

  void context_ready(SequenceState& sequence, Ops& ops) override {
    FetchRegion region{place_host_region(sequence, options_, Side::device, ops), {}};
    if (!region.empty()) {
      const std::uint32_t blocks = (region.tokens.end - region.tokens.begin + options_.block - 1) / options_.block;
      const std::uint32_t most =
          std::min(blocks, ops.shape().group() * region.blocks_per_head);  // all heads choose others
      region.staging = ops.make_staging(sequence, most * options_.block, 1);
    }
    sequence.method = region;
  }

  AttendPlan plan_attend(const LayerContext& context, Ops& ops) override {
    std::vector<ScoreRequest> requests;
    AttendPlan plan = plan_near<FetchRegion>(context, requests);
    if (requests.empty()) return plan;
    const std::vector<Blocks> selections = ops.score_topk(context, requests);
    std::vector<FetchRequest> wanted;
    wanted.reserve(requests.size());
    for (std::size_t i = 0; i < requests.size(); ++i) {
      const auto& region = std::any_cast<const FetchRegion&>(requests[i].sequence->method);
      wanted.push_back({requests[i].sequence, region.staging, selections[i]});
    }
    const std::vector<KvSource> fetched = ops.fetch(context.layer, wanted);
    for (std::size_t i = 0; i < requests.size(); ++i) {
      plan.items.push_back({.row = requests[i].sequence->row, .kv = fetched[i], .own_only = options_.own_only()});
    }
    return plan;
  }

 private:
  FixedBudgetOptions options_;
};

}  // namespace

MethodInfo gpu_fetch_info() {
  MethodInfo info;
  info.name = "gpu-fetch";
  info.summary = "KV in host memory, digests on the device, which fetches a fixed share of the blocks every step";
  info.description =
      "After the prefill, everything between the sinks and the window moves to host memory; its digests (per channel "
      "min and max of a block's keys, or with digest=mean their mean) stay on the device. Each step the device scores "
      "all blocks with the true query, "
      "reads the best ceil(budget x host tokens / block) of each query head over the link (what several heads of a "
      "group chose, once) and attends to them. Budget: share of the host-resident tokens; sinks, window and new tokens "
      "are on top. New tokens: stay on the device, as sinks and window do; the paper has all KV in CPU memory.";
  info.source = "Fluxion's baseline 'GPU-only' (papers: Fluxion, section 2.2); digests: Quest (arXiv 2406.10774)";
  info.budget = "share-of-host-tokens";
  info.budget_options = budget_options_of_fixed();
  FixedBudgetOptions defaults;
  info.options = defaults.bind("gpu-fetch").describe();
  info.make = [](const MethodSpec& spec) -> std::unique_ptr<Method> {
    FixedBudgetOptions options;
    options.bind("gpu-fetch").parse(spec);
    return std::make_unique<GpuFetch>(options);
  };
  return info;
}

}  // namespace tandem
