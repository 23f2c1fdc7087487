#include "methods/fluxion/selector.h"

#include <algorithm>
#include <cmath>

#include "engine/common/error.h"

namespace tandem {
namespace {

constexpr double kRounding = 1.2e-7;  // relative, of an f32

bool skipped(const HeadProperties& head, SelectorStage stage) {
  return stage == SelectorStage::skip && head.streaming;
}

}  // namespace

double budget_at(const HeadProperties& head, std::uint32_t block) {
  const double budget = double{head.budget} + double{head.slope} * std::log2(static_cast<double>(block));
  return std::clamp(budget, 0.0, 1.0);
}

double volume_at(std::span<const HeadProperties> group, std::uint32_t host_tokens, std::uint32_t block,
                 SelectorStage stage) {
  double budgets = 0;
  for (const HeadProperties& head : group) budgets += skipped(head, stage) ? 0 : budget_at(head, block);
  return 2.0 * host_tokens / block + 2.0 * host_tokens * budgets;
}

GroupChoice choose_granularity(std::span<const HeadProperties> group, std::uint32_t host_tokens, SelectorStage stage,
                               std::uint32_t least) {
  TANDEM_CHECK(host_tokens > 0 && !group.empty(), "a choice for {} heads over {} tokens", group.size(), host_tokens);
  GroupChoice choice;
  choice.keep.resize(group.size());
  choice.retrieval =
      std::any_of(group.begin(), group.end(), [stage](const HeadProperties& head) { return !skipped(head, stage); });
  if (!choice.retrieval) return choice;
  if (stage == SelectorStage::fixed32) choice.block = 32;
  choice.volume = volume_at(group, host_tokens, choice.block, stage);
  if (stage == SelectorStage::dynamic || stage == SelectorStage::skip) {
    for (const std::uint32_t block : kGranularities) {
      const double volume = volume_at(group, host_tokens, block, stage);
      if (volume >= choice.volume) continue;
      choice.block = block;
      choice.volume = volume;
    }
  }
  const std::uint32_t all = (host_tokens + choice.block - 1) / choice.block;
  for (std::size_t h = 0; h < group.size(); ++h) {
    if (skipped(group[h], stage)) continue;
    // A budget is an f32, which 0.05 is not: of 32,000 tokens it is 100 blocks of 16, not 101. All of them are all.
    const double budget = budget_at(group[h], choice.block), blocks = budget * host_tokens / choice.block;
    const double slack = budget < 1 ? 1e-6 + kRounding * blocks : 0;
    choice.keep[h] = static_cast<std::uint32_t>(std::ceil(std::max(blocks - slack, 0.0)));
    if (!group[h].streaming) choice.keep[h] = std::max(choice.keep[h], std::min(least, all));
  }
  return choice;
}

}  // namespace tandem
