// The profile of predicted queries for people and for programs.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "eval/heads/query_shift.h"
#include "eval/heads/report.h"

namespace tandem::eval {

/// Overlap by distance as a plot, and a row per reading, beside AsyncSpade's figures 4 and 5.
std::string query_shift_text(const ShiftProfile& profile, const HeadSource& source);

nlohmann::ordered_json query_shift_json(const ShiftProfile& profile, const HeadSource& source);

}  // namespace tandem::eval
