// How often each layer of a model needs a recall (ScoutAttention section 3.4): the CPU's share of the budget grows from
// step to step while the residents stay what they were; a layer is due before it reaches a threshold.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/runtime/engine.h"
#include "eval/heads/heads.h"

namespace tandem::eval {

struct RecallOptions {
  std::string method = "scoutattention";  // spec without `recall`
  std::uint32_t budget = 0;               // tokens, of that spec
  std::uint32_t steps = 32;               // decode steps per prompt, and the longest interval
  double threshold = 0.12;                // beta_recall, of the CPU compute ratio
};

/// CPU compute ratio: tokens attended on the host over the budget. [layer][step], means over the prompts.
using Ratios = std::vector<std::vector<double>>;

struct RecallProfile {
  RecallOptions options;
  std::uint64_t prompts = 0, tokens = 0;  // tokens: sum over the prompts
  std::vector<std::uint32_t> intervals;   // by layer
  Ratios without, with;                   // recalls: never, and at these intervals
  /// By layer: tokens of chosen blocks that the step before did not choose, over the budget.
  std::vector<double> changed;
  double mean_interval() const;
};

/// The most steps of which each has a ratio below the threshold, at least 1: a recall after so many steps.
std::uint32_t longest_interval(const std::vector<double>& ratios, double threshold);

double mean(const Ratios& ratios);

/// Decodes the prompts with full attention and then the same tokens with the method, three times each. The model must
/// have no stop tokens, so that every prompt has all steps. InputError where no prompt has more blocks than the budget
/// holds. `progress` counts each prompt twice.
RecallProfile profile_recall(Engine& engine, const std::vector<HeadPrompt>& prompts, const RecallOptions& options,
                             const ProfileProgress& progress = {});

}  // namespace tandem::eval
