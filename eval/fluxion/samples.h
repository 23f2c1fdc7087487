// Training data of Fluxion's predictor from one prompt: full attention decodes it, and at some steps every head of
// every layer gives a row of features (methods/fluxion/features.h) and labels (methods/fluxion/labels.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/kernels/thread_pool.h"
#include "engine/runtime/engine.h"
#include "methods/fluxion/labels.h"

namespace tandem::eval {

/// Not the seed of `tandem compare` and `tandem eval`: what a predictor is trained on it must not be judged by.
inline constexpr std::uint64_t kCollectSeed = 271828;

struct CollectOptions {
  std::uint32_t sinks = 64, window = 256;  // tokens on the device; both round up to a page
  std::uint32_t decode_steps = 32;         // decoded per prompt
  std::uint32_t steps = 8;                 // of these, sampled
  std::vector<double> taus = {0.10};       // of Eq. 2: labels for each
  double mass = 0.95;
  std::uint64_t seed = kCollectSeed;

  std::vector<BudgetLimits> limits() const;  // one for each tau
};

/// Rows in the order of steps, layers, query heads. `tau` counts CollectOptions::taus.
struct FluxionSamples {
  std::uint32_t rows = 0;
  std::vector<std::int32_t> steps;    // [rows], 0 for the step that computes the first generated token
  std::vector<float> features;        // [rows][kFeatures], with the budgets of BudgetPolicy::fluxion under the anchor,
                                      // first tau
  std::vector<float> anchor_budgets;  // [rows][tau][policy][16, 32, 64, 128 tokens]: those columns for all
  std::vector<float> budgets;         // [rows][tau][policy][kLabelBlocks]
  std::vector<float> slopes;          // [rows][tau][policy]
  std::vector<std::uint8_t> streaming;  // [rows][tau][policy]
  std::size_t taus = 1;

  /// A safetensors file with tensors of these names ("steps", "features", ...); the same bytes for the same numbers.
  std::string bytes() const;
};

/// Which steps of a prompt are sampled: `options.steps` different ones, ascending, by seed and prompt number.
std::vector<std::uint32_t> sampled_steps(const CollectOptions& options, std::uint64_t prompt);

/// Prefills and decodes greedily; the model must have no stop tokens, so that every prompt has all steps. `prompt`: the
/// number that its steps are drawn by. InputError where sinks and window leave nothing for the host. The numbers do not
/// depend on the pool's threads.
FluxionSamples collect_samples(Engine& engine, ThreadPool& pool, const std::string& name,
                               const std::vector<std::int32_t>& tokens, std::uint64_t prompt,
                               const CollectOptions& options);

}  // namespace tandem::eval
