// Formulas of a parsed LaTeX text: what has a value, without relations, lists and sets.
#pragma once

#include "eval/answers/expression.h"
#include "eval/answers/latex_grammar.h"

namespace tandem::eval {

/// Thrown for a formula that latex2sympy2_extended raises an exception for.
struct UnreadFormula {};

/// The expression; UnreadFormula for a null.
inline Expr required(Expr expression) {
  if (!expression) throw UnreadFormula();
  return expression;
}

/// The expression of a node of rule "expr" or "symbol". `is_complex`: its symbols stand for complex numbers.
Expr read_formula(const LatexNode& node, bool is_complex);
Expr read_symbol(const LatexNode& node, bool is_complex);

}  // namespace tandem::eval
