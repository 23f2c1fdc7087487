// Records a workload profile (engine/runtime/workload.h) from real prompts under full attention.
#pragma once

#include <vector>

#include "engine/runtime/engine.h"
#include "engine/runtime/workload.h"
#include "eval/heads/heads.h"

namespace tandem::eval {

inline constexpr std::uint32_t kRecordedTokens = 130;  // the fewest of a prompt that says something

/// Per layer and head, means over the prompts: concentration from the share of tokens whose mean weight under the last
/// 64 queries exceeds 1 / tokens; correlation within a group and from one query to the next from how much the best
/// eighth of the blocks of 32 tokens, by Quest's bound, have in common. `engine` has a device KV budget for the longest
/// prompt. No prompt has less than kRecordedTokens.
Workload record_workload(const Model& model, Engine& engine, ThreadPool& pool, const std::vector<HeadPrompt>& prompts);

}  // namespace tandem::eval
