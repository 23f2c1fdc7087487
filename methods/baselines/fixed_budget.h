// What hybrid-fixed and gpu-fetch share: sinks, the prompt's last tokens and everything new stay on the device, the
// rest of the prompt lies in host memory, and each query head attends to a fixed share of its blocks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/runtime/method.h"
#include "methods/options.h"
#include "methods/registry.h"

namespace tandem {

struct FixedBudgetOptions {
  double budget = 0.05;
  std::uint32_t block = 16, sinks = 64, window = 256;
  std::string union_mode = "masked", digest = "bounds";

  OptionSet bind(std::string method);
  bool lossless() const { return budget >= 1; }
  bool own_only() const { return union_mode == "masked"; }
};

/// What comparisons at equal bytes set: the share that is attended, or the window, which is what the device keeps.
std::vector<BudgetOption> budget_options_of_fixed();

/// What a sequence keeps in host memory, fixed when its context is ready.
struct HostRegion {
  Range tokens;  // empty: everything fits on the device
  DigestRef digests;
  std::uint32_t blocks_per_head = 0;

  bool empty() const { return tokens.begin == tokens.end; }
  /// Everything else: what the device attends to in every step.
  Ranges near(const SequenceState& sequence) const;
};

/// Moves the region to host memory, with digests on `side`.
HostRegion place_host_region(SequenceState& sequence, const FixedBudgetOptions& options, Side side, Ops& ops);

/// A plan of the tokens near by, and in `requests` the selections of the sequences that have a region, by state in
/// SequenceState::method, a Region that derives from HostRegion.
template <class Region>
AttendPlan plan_near(const LayerContext& context, std::vector<ScoreRequest>& requests) {
  AttendPlan plan;
  for (const SequenceState* sequence : context.batch) {
    const HostRegion& region = std::any_cast<const Region&>(sequence->method);
    plan.items.push_back({.row = sequence->row, .kv = region.near(*sequence)});
    if (region.empty()) continue;
    requests.push_back({.sequence = sequence, .digests = region.digests, .blocks = region.blocks_per_head});
  }
  return plan;
}

}  // namespace tandem
