// One cell of comma-separated values (RFC 4180).
#pragma once

#include <string>

namespace tandem::eval {

/// printable() text that a spreadsheet takes for text: behind an apostrophe where it would begin a formula, in quotes
/// where it holds what separates cells, in some countries' tables a semicolon.
std::string csv_cell(const std::string& text);

}  // namespace tandem::eval
