// The 41 numbers that Fluxion's predictor sees of a query head (Fluxion Table 1 and appendix A.1). All but eleven are
// known when the prompt is; the others follow from the step's query and from attention over what the device holds, so
// that no step reads host memory for them.
//
// "Anchor" is the query of the last prefill token, q' in the paper. Segments are those of labels.h. Means, variances
// (of the population), skewness and kurtosis (m4 / m2^2, 3 for a normal distribution) run over the host's tokens; where
// the variance is 0, the latter two are 0.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "engine/kernels/head_features.h"
#include "methods/fluxion/labels.h"
#include "methods/fluxion/properties.h"

namespace tandem {

/// Names of the columns, as data sets carry them.
const std::array<std::string_view, kFeatures>& feature_names();

/// What is computed once from a layer's prefill and kept for its steps.
struct PrefillStatistics {
  std::uint32_t q_heads = 0, kv_heads = 0, dim = 0;
  std::vector<float> known;          // [Hq][kFeatures]; 0 in the columns marked `step`
  std::vector<float> anchor;         // [Hq][D]
  std::vector<float> mean_key;       // [Hkv][D], over the host's tokens
  std::vector<PolicyLabels> labels;  // [Hq], under the anchor
};

/// `layer`: the anchor, with segments.tokens == segments.prefill, and a host segment that is not empty (a sequence
/// without one has nothing to select and needs no predictor). `digests` by KV head. The budget columns are those of
/// `policy`.
PrefillStatistics prefill_statistics(std::uint32_t layer_index, const LayerQuery& layer,
                                     std::span<const HostDigests> digests, const BudgetLimits& limits,
                                     BudgetPolicy policy = BudgetPolicy::fluxion);

/// The features of one step of the same layer, by the step's own part of `step`: what comes from the prefill, and
/// `out`, are filled in here. All are finite for finite input.
void features(const PrefillStatistics& prefill, StepFeatures step, float* out /*[Hq][kFeatures]*/);

}  // namespace tandem
