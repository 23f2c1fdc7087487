// Formulas of a parsed LaTeX text: what has a value, without relations, lists and sets.
#pragma once

#include <string>
#include <string_view>
#include <vector>

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

/// "1,234.5" and "1E-3" without commas and leading zeros.
Expr number_of(std::string_view text);

class FormulaReader {
 public:
  /// The tokens must outlive this.
  FormulaReader(const std::vector<LatexToken>& tokens, bool is_complex) : tokens_(tokens), is_complex_(is_complex) {}

  Expr expr(const LatexNode& node) const;    // of rule "expr"
  Expr symbol(const LatexNode& node) const;  // of rule "symbol"

 private:
  std::string text(const LatexNode& node) const;
  Expr product(const LatexNode& node) const;
  Expr signed_product(const LatexNode& node) const;
  Expr postfix(const LatexNode& node) const;
  Expr base(const LatexNode& whole) const;
  Expr fraction(const LatexNode& node) const;
  Expr matrix(const LatexNode& node) const;
  Expr atom(const LatexNode& whole) const;
  Expr script(const LatexNode& node) const;  // of a subscript or superscript
  std::string subscript(const LatexNode& node) const;
  Expr function(const LatexNode& node) const;
  Expr operation(const LatexNode& node) const;
  Expr unary_call(const LatexNode& node) const;
  Expr list_call(const LatexNode& node) const;
  Expr named_call(const LatexNode& node) const;

  const std::vector<LatexToken>& tokens_;
  bool is_complex_;
};

}  // namespace tandem::eval
