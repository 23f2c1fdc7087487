#include "engine/kernels/paged_attention.h"

#include <algorithm>
#include <bit>

#include "engine/common/error.h"

namespace tandem {
namespace {

// About 64 splits of a list, of 64 to 512 tokens: enough warps for a batch of one at 4K tokens, and at 32K tokens
// partial results that are 1 % of the KV read.
std::uint32_t split_entries(std::uint32_t entries) {
  return std::clamp(std::bit_ceil((entries + 63) / 64), 4u, kMaxSplitEntries);
}

}  // namespace

bool is_split(std::uint32_t entries) {
  return entries > split_entries(entries);
}

AttentionPlan plan_paged_attention(std::span<const std::uint32_t> entries, std::uint32_t rows, std::uint32_t kv_heads,
                                   bool per_kv_head) {
  TANDEM_CHECK(entries.size() == std::size_t{rows} * (per_kv_head ? kv_heads : 1),
               "{} lists of {} rows and {} KV heads", entries.size(), rows, kv_heads);
  std::vector<AttentionTask> tasks;
  tasks.reserve(std::size_t{rows} * kv_heads);
  for (std::uint32_t row = 0; row < rows; ++row) {
    for (std::uint32_t head = 0; head < kv_heads; ++head)
      tasks.push_back({row, head, entries[per_kv_head ? row * kv_heads + head : row]});
  }
  return plan_attention_tasks(tasks);
}

AttentionPlan plan_attention_tasks(std::span<const AttentionTask> tasks) {
  AttentionPlan plan;
  std::vector<AttentionWork> by_length[kMaxSplitEntries + 1];
  for (const auto& [row, head, all] : tasks) {
    if (!is_split(all)) {
      by_length[all].push_back({row, head, 0, all, AttentionWork::kWhole});
      continue;
    }
    const std::uint32_t split = split_entries(all);
    plan.merges.push_back({row, head, plan.parts, 0});
    for (std::uint32_t first = 0; first < all; first += split) {
      const std::uint32_t count = std::min(split, all - first);
      by_length[count].push_back({row, head, first, count, plan.parts++});
      ++plan.merges.back().parts;
    }
  }
  for (std::uint32_t length = kMaxSplitEntries + 1; length-- > 0;) {
    plan.work.insert(plan.work.end(), by_length[length].begin(), by_length[length].end());
  }
  return plan;
}

}  // namespace tandem
