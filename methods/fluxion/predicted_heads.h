// Head properties from the predictor: the 41 features, prefill's once and the step's each time, and the network.
#pragma once

#include <memory>

#include "engine/mechanisms/context_view/context_view.h"
#include "methods/fluxion/fluxion.h"
#include "methods/fluxion/predictor.h"

namespace tandem {

/// `otherwise` speaks for a sequence that had nothing in host memory after its prefill, and where only the shape is
/// simulated that the predictor was trained for; check() refuses every other.
std::shared_ptr<const HeadSource> predicted_heads(std::shared_ptr<const Predictor> predictor, BudgetPolicy policy,
                                                  std::shared_ptr<const HeadSource> otherwise);

/// A look at a context of so many tokens for the prefill's part of the features, but for what looks.
ContextRequest statistics_request(const ModelShape& shape, std::uint32_t tokens);

/// What a sequence's prefill leaves for the predictor in a layer, on the device: PrefillStatistics without its labels.
std::size_t layer_statistics_bytes(const ModelShape& shape);

/// What estimating all heads of a layer costs beside queries and partials, with a network of so many FLOPs and bytes.
Cost prediction_cost(const ModelShape& shape, std::uint32_t rows, std::uint64_t flops, std::uint64_t bytes);

}  // namespace tandem
