// Whether two expressions are the same answer: Math-Verify 0.9.0's sympy_expr_eq(), where sympy simplifies a difference
// to zero by exact arithmetic and by values at several points.
#pragma once

#include "eval/answers/expression.h"

namespace tandem::eval {

/// Not symmetric; see math_answers_equal().
bool is_right(const Expr& reference, const Expr& answer);

}  // namespace tandem::eval
