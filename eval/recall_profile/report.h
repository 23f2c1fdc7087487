// Profiles of ScoutAttention's assumptions for people and for programs.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "eval/heads/report.h"
#include "eval/recall_profile/recall_profile.h"

namespace tandem::eval {

/// Cosine of predicted and true queries per layer under both norms, beside the paper's Table 1.
std::string layer_ahead_text(const HeadProfile& profile, const HeadSource& source);

/// Intervals, and the CPU compute ratio by step as a plot, beside the paper's Figure 6.
std::string recall_text(const RecallProfile& profile, const HeadSource& source);

/// All of it; `intervals` is what scoutattention:recall=FILE loads.
nlohmann::ordered_json recall_json(const RecallProfile& profile, const HeadSource& source);

}  // namespace tandem::eval
