// Tables in LaTeX, with the rules of the package booktabs.
#pragma once

#include <string>

#include "eval/report/table.h"

namespace tandem::eval {

/// A tabular environment. The clock spans the columns that it is of.
std::string latex_table(const Table& table);

/// printable() text as LaTeX prints it: its special characters escaped, minus signs as such.
std::string latex_text(const std::string& text);

/// A line that LaTeX does not see.
std::string latex_comment(const std::string& text);

}  // namespace tandem::eval
