// Expressions in plain text: 1/2, 3*(4 + 5)^2.
#pragma once

#include <string_view>

#include "eval/answers/expression.h"

namespace tandem::eval {

/// What sympy 1.14's parse_expr() makes of digits, "+-*/^()", points and blanks: Python's syntax, with ^ as a power.
/// Null for everything else, "2(3)" and "007" too, for parentheses or signs nested deeper than 100, and for more than
/// 2000 bytes.
Expr read_plain(std::string_view text);

}  // namespace tandem::eval
