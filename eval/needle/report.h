// What a needle's run shows: recall by depth and length of each method, as maps, and where a method loses.
#pragma once

#include <string>

#include "eval/report/summary.h"

namespace tandem::eval {

/// Sections behind those that every run has. For a terminal a cell is shaded by its recall.
std::string needle_report(const Summary& summary, bool markdown);

}  // namespace tandem::eval
