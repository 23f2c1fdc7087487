// The grammar of formulas that latex2sympy2_extended 1.11.0 reads (its PS.g4), as a table, and a reader for it.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "eval/answers/latex_tokens.h"

namespace tandem::eval {

/// A node of the parse tree: a rule with the rules and tokens that it matched, or a token.
struct LatexNode {
  std::string_view rule;  // a rule in small letters, or a token's kind in capitals
  std::string word;       // of a token
  std::vector<std::unique_ptr<LatexNode>> children;

  /// The `n`th child of this kind; null where there are fewer.
  const LatexNode* child(std::string_view name, std::size_t n = 0) const;
  bool has(std::string_view name) const { return child(name) != nullptr; }
  std::vector<const LatexNode*> all(std::string_view name) const;
  std::string text() const;  // of all its tokens
};

/// The tree of a whole formula, rule "answer". Of the trees that there are it is the one that ANTLR builds: from left
/// to right, each choice is the first one that lets the rest be read. Null where there is none, and for formulas of
/// more than 1000 tokens, or nested deeper than some 60 groups.
std::unique_ptr<LatexNode> parse_latex(const std::vector<LatexToken>& tokens);

}  // namespace tandem::eval
