#include "methods/baselines/fixed_budget.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "methods/common_options.h"

namespace tandem {

OptionSet FixedBudgetOptions::bind(std::string method) {
  OptionSet set(std::move(method));
  set.ratio("budget", budget, 0, 1, "share of the host-resident tokens that each query head attends");
  set.number_of("block", block, {16, 32, 64, 128}, "tokens per block of the selection");
  set.tokens("sinks", sinks, "first tokens, kept on the device");
  set.tokens("window", window, "last prompt tokens, kept on the device; rounded up to a page");
  add_union_option(set, union_mode);
  add_digest_option(set, digest);
  return set;
}

std::vector<BudgetOption> budget_options_of_fixed() {
  return {{.option = "budget", .scale = BudgetOption::Scale::share, .turns_device = false},
          {.option = "window", .step = kPageTokens, .turns_touched = false}};
}

Ranges HostRegion::near(const SequenceState& sequence) const {
  return Ranges::around(tokens, sequence.tokens);
}

HostRegion place_host_region(SequenceState& sequence, const FixedBudgetOptions& options, Side side, Ops& ops) {
  HostRegion region;
  region.tokens = {0, 0};
  const std::uint32_t begin = blocks_for(std::min(options.sinks, sequence.tokens)) * kPageTokens;
  const std::uint32_t end =
      sequence.tokens > options.window ? (sequence.tokens - options.window) / kPageTokens * kPageTokens : 0;
  if (begin >= end) return region;
  region.tokens = {begin, end};
  const DigestRequest digests{
      .tokens = region.tokens, .block = options.block, .side = side, .kind = digest_kind_of(options.digest)};
  // Each side digests what it has: the device before the tokens leave it, the host once they are there.
  if (side == Side::device) region.digests = ops.build_digests(sequence, digests);
  ops.move_to_host(sequence, region.tokens);
  if (side == Side::host) region.digests = ops.build_digests(sequence, digests);
  const double blocks = options.budget * (end - begin) / options.block;
  region.blocks_per_head = static_cast<std::uint32_t>(std::ceil(blocks - 1e-9));  // 0.05 * 320 / 16 is 1 block, not 2
  return region;
}

}  // namespace tandem
