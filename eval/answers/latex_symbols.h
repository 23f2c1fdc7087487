// Names of symbols, as latex2sympy2_extended 1.11.0 gives them.
#pragma once

#include <string>
#include <string_view>

#include "eval/answers/expression.h"

namespace tandem::eval {

std::string lower_case(std::string_view text);

Expr make_symbol(std::string name, bool is_complex);

/// The symbol or constant of a word with its subscript: "\alpha" is alpha, "\text{(C)}" is c, "X_1" is x_1, "\pi" is
/// the number, I the imaginary unit.
Expr named_symbol(std::string_view word, const std::string& subscript, bool is_complex);

/// +1 or -1 for infinity and its negative, 0 for everything else.
int infinite_sign(const Expr& expression);

/// -1, 0 or 1 where both are real numbers or infinite.
std::optional<int> order_of(const Expr& a, const Expr& b);

}  // namespace tandem::eval
