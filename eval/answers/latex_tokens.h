// Words of a LaTeX formula, cut as the lexer of latex2sympy2_extended 1.11.0 cuts them: the longest one that fits, of
// equally long ones the first of its table. White space, thin spaces and \$ are left out.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::eval {

struct LatexToken {
  std::uint8_t kind = 0;  // an index into latex_token_kinds()
  std::string text;
};

/// Names of kinds, as the grammar (latex_grammar.cc) writes them.
const std::vector<std::string_view>& latex_token_kinds();

/// "\alpha" of a Greek letter; empty for other texts.
std::string_view greek_command(std::string_view letter);

/// UTF-8. Nothing where a character begins no word.
std::optional<std::vector<LatexToken>> latex_tokens(std::string_view text);

}  // namespace tandem::eval
