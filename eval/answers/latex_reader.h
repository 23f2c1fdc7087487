// LaTeX formulas as expressions.
#pragma once

#include <optional>
#include <string_view>

#include "eval/answers/expression.h"

namespace tandem::eval {

/// The expression of a formula, as latex2sympy2_extended 1.11.0 converts it for Math-Verify 0.9.0: numbers with commas
/// are one number where nothing else is there, "2 \frac{1}{2}" is a mixed number, subscripts of numbers are left out,
/// letters are symbols in small letters, (a,b) is an open interval unless b <= a, ... Symbols are real unless the text
/// speaks of complex numbers. Of a chain a=b=c that cannot be read the last part is read. Null where the text cannot be
/// read. What differs from upstream: \\[4pt] ends a row of a matrix; elementary row operations and eigenvalues are not
/// read.
Expr read_latex(std::string_view latex);

}  // namespace tandem::eval
