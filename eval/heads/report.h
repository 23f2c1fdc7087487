// A head profile for people and for programs.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "eval/heads/heads.h"

namespace tandem::eval {

/// Where a profile comes from; all of it goes into the JSON file.
struct HeadSource {
  std::string command, tandem_version, git_commit, model, weights_hash, tokenizer_hash, prompts;
  std::string gpu;  // where the model was computed; empty: on the CPU
};

/// What every profile's file begins with: its schema, the source, how many prompts and their mean length.
nlohmann::ordered_json profile_head(const char* schema, const HeadSource& source, std::uint64_t prompts,
                                    std::uint64_t tokens);

/// Tables no wider than the terminal and what their columns mean. `each_head`: one row per query head besides the
/// layers.
std::string head_report_text(const HeadProfile& profile, const HeadSource& source, bool each_head);

/// All numbers, rounded to six digits after the point; null where there is none (in layer 0 a layer before).
nlohmann::ordered_json head_profile_json(const HeadProfile& profile, const HeadSource& source);

}  // namespace tandem::eval
