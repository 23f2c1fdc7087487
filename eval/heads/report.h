// Profiles of a model's attention for people and for programs. Texts are no wider than the terminal.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "eval/heads/heads.h"
#include "eval/heads/query_shift.h"
#include "eval/heads/recall_profile.h"

namespace tandem::eval {

/// Where a profile comes from; all of it goes into the JSON file.
struct HeadSource {
  std::string command, tandem_version, git_commit, model, weights_hash, tokenizer_hash, prompts;
  std::string gpu;  // where the model was computed; empty: on the CPU
};

/// Tables and what their columns mean. `each_head`: one row per query head besides the layers.
std::string head_report_text(const HeadProfile& profile, const HeadSource& source, bool each_head);
/// Cosine of predicted and true queries per layer under both norms, beside ScoutAttention's Table 1.
std::string layer_ahead_text(const HeadProfile& profile, const HeadSource& source);
/// All numbers, rounded to six digits after the point; null where there is none (in layer 0 a layer before).
nlohmann::ordered_json head_profile_json(const HeadProfile& profile, const HeadSource& source);

/// Overlap by distance as a plot, and a row per reading, beside AsyncSpade's figures 4 and 5.
std::string query_shift_text(const ShiftProfile& profile, const HeadSource& source);
nlohmann::ordered_json query_shift_json(const ShiftProfile& profile, const HeadSource& source);

/// Intervals, and the CPU compute ratio by step as a plot, beside ScoutAttention's Figure 6.
std::string recall_text(const RecallProfile& profile, const HeadSource& source);
/// All of it; `intervals` is what scoutattention:recall=FILE loads.
nlohmann::ordered_json recall_json(const RecallProfile& profile, const HeadSource& source);

}  // namespace tandem::eval
