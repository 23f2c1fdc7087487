// Head properties from labels instead of a predictor, and what a choice of blocks leaves out: for judging predictors
// and options. Both look at all of a sequence's KV in host memory in every layer and step, by brute force, from a copy
// of their own; none of this is counted as cost, so that times and bytes are those of a method that had known by
// itself.
#pragma once

#include <functional>
#include <memory>

#include "methods/fluxion/fluxion.h"
#include "methods/fluxion/labels.h"
#include "methods/fluxion/selector.h"

namespace tandem {

/// The labels of labels.h, measured in the run. InputError where only shapes are simulated. `otherwise` speaks for a
/// sequence that had nothing in host memory after its prefill.
std::shared_ptr<const HeadSource> oracle_heads(BudgetPolicy policy, const BudgetLimits& limits, BudgetLine line,
                                               std::shared_ptr<const HeadSource> otherwise);

/// `source`, with `watch` called for every row of every layer and step that has KV in host memory. The errors are those
/// of attention in f32 over the blocks that `stage` chooses from the source's properties.
std::shared_ptr<const HeadSource> watched_heads(std::shared_ptr<const HeadSource> source, SelectorStage stage,
                                                HeadWatch watch);

}  // namespace tandem
