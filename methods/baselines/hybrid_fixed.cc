#include <algorithm>
#include <cmath>

#include "methods/baselines/baselines.h"

namespace tandem {
namespace {

struct HybridFixedOptions {
  double budget = 0.05;
  std::uint32_t block = 16, sinks = 64, window = 256;
  std::string union_mode = "masked";
  OptionSet bind() {
    OptionSet set("hybrid-fixed");
    set.ratio("budget", budget, 0, 1, "share of the host-resident tokens that each query head attends");
    set.number_of("block", block, {16, 32, 64, 128}, "tokens per block of the selection");
    set.tokens("sinks", sinks, "first tokens, kept on the device");
    set.tokens("window", window, "last prompt tokens, kept on the device; rounded up to a page");
    set.choice("union", union_mode, {"masked", "attended"},
               "whether a head attends only the blocks it chose, or all that its group chose");
    return set;
  }
};

/// What a sequence keeps on the host, fixed when its context is ready.
struct HostRegion {
  Range tokens;  // empty: everything fits on the device
  DigestRef digests;
  std::uint32_t blocks_per_head = 0;
};

/// Fluxion's baseline "w/o Fluxion": sinks, window and new tokens on the device with dense attention; the rest in host
/// memory, where each step scores all blocks and attends to a fixed share of them, the same for every head.
class HybridFixed : public Method {
 public:
  explicit HybridFixed(HybridFixedOptions options) : options_(std::move(options)) {}

  std::string spelled_out() const override {
    HybridFixedOptions copy = options_;
    return copy.bind().spelled_out();
  }
  Needs needs(const ModelShape&) const override { return {.lossless = options_.budget >= 1, .host_tier = true}; }

  void context_ready(SequenceState& sequence, Ops& ops) override {
    HostRegion region;
    const std::uint32_t begin = blocks_for(std::min(options_.sinks, sequence.tokens)) * kPageTokens;
    const std::uint32_t end =
        sequence.tokens > options_.window ? (sequence.tokens - options_.window) / kPageTokens * kPageTokens : 0;
    if (begin < end) {
      region.tokens = {begin, end};
      ops.move_to_host(sequence, region.tokens);
      region.digests = ops.build_digests(sequence, {.tokens = region.tokens, .block = options_.block});
      const double blocks = options_.budget * (end - begin) / options_.block;
      region.blocks_per_head =
          static_cast<std::uint32_t>(std::ceil(blocks - 1e-9));  // 0.05 * 320 / 16 is 1 block, not 2
    } else {
      region.tokens = {0, 0};
    }
    sequence.method = region;
  }

  AttendPlan plan_attend(const LayerContext& context, Ops& ops) override {
    AttendPlan plan;
    std::vector<ScoreRequest> requests;
    for (const SequenceState* sequence : context.batch) {
      const auto& region = std::any_cast<const HostRegion&>(sequence->method);
      if (region.tokens.begin == region.tokens.end) {
        plan.items.push_back({.row = sequence->row, .pages = {StaticTokens{{{0, sequence->tokens}}}}});
        continue;
      }
      StaticTokens near;
      if (region.tokens.begin > 0) near.ranges.push_back({0, region.tokens.begin});
      near.ranges.push_back({region.tokens.end, sequence->tokens});
      plan.items.push_back({.row = sequence->row, .pages = {std::move(near)}});
      requests.push_back({.sequence = sequence, .digests = region.digests, .blocks = region.blocks_per_head});
    }
    const std::vector<SelectionRef> selections = ops.score_topk(context, requests);
    for (std::size_t i = 0; i < requests.size(); ++i) {
      plan.items.push_back({.row = requests[i].sequence->row,
                            .pages = {selections[i]},
                            .side = Side::host,
                            .own_only = options_.union_mode == "masked"});
    }
    return plan;
  }

 private:
  HybridFixedOptions options_;
};

}  // namespace

MethodInfo hybrid_fixed_info() {
  MethodInfo info;
  info.name = "hybrid-fixed";
  info.summary = "sinks and window on the device, a fixed share of the rest attended on the CPU";
  info.description =
      "After the prefill, everything between the sinks and the window moves to host memory with Quest digests (per "
      "channel "
      "min and max of a block's keys). Each step the CPU scores all blocks with the true query, takes the best "
      "ceil(budget x host tokens / block) per query head, attends to them and returns partial results that the device "
      "merges "
      "with its own. Budget: share of the host-resident tokens; sinks, window and new tokens are on top. New tokens: "
      "stay on "
      "the device.";
  info.source = "Fluxion's baseline 'w/o Fluxion' (papers: Fluxion, section 5.1); digests: Quest (arXiv 2406.10774)";
  info.budget = "share-of-host-tokens";
  HybridFixedOptions defaults;
  info.options = defaults.bind().describe();
  info.make = [](const MethodSpec& spec) -> std::unique_ptr<Method> {
    HybridFixedOptions options;
    options.bind().parse(spec);
    return std::make_unique<HybridFixed>(options);
  };
  return info;
}

}  // namespace tandem
