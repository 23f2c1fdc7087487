// The granularity-budget selector (Fluxion, section 5.3, Eq. 3): one block size per KV group and step, and of that size
// a number of blocks per query head.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "methods/fluxion/properties.h"

namespace tandem {

/// Block sizes that digests exist for.
inline constexpr std::array<std::uint32_t, 4> kGranularities = {16, 32, 64, 128};

/// The ablation's stages: one block size for all groups; the best per group; the same, and streaming heads are skipped.
/// Before the last one every head is a retrieval head, with the budget that was predicted for it.
enum class SelectorStage : std::uint8_t { fixed16, fixed32, dynamic, skip };

/// What a KV group does about its KV in host memory in one layer and step.
struct GroupChoice {
  std::uint32_t block = kGranularities[0];
  /// Of each query head of the group: blocks that it attends; 0: its device output is final.
  std::vector<std::uint32_t> keep;
  /// V(blk*) of Eq. 3: vectors read, of digests (two per block) and of K and V (two per token and head).
  double volume = 0;
  bool retrieval = false;  // some head is not streaming: the group is a task
};

/// bgt_h(blk) = bgt_{h,0} + k_h log2(blk), clamped to [0, 1].
double budget_at(const HeadProperties& head, std::uint32_t block);

/// V(blk) of Eq. 3 for a group over `host_tokens` tokens; a streaming head's budget counts as 0 where it is skipped.
double volume_at(std::span<const HeadProperties> group, std::uint32_t host_tokens, std::uint32_t block,
                 SelectorStage stage);

/// The block size of the least volume, the smaller one of equals, and each head's ceil(bgt_h(blk*) host_tokens / blk*)
/// blocks, `least` of them at least for heads that do not stream. host_tokens > 0.
GroupChoice choose_granularity(std::span<const HeadProperties> group, std::uint32_t host_tokens, SelectorStage stage,
                               std::uint32_t least = 0);

}  // namespace tandem
