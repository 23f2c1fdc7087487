// Formulas in a text.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "eval/answers/math_candidates.h"

namespace tandem::eval {

/// Finds formulas that begin at given places of one text.
class LatexPieces {
 public:
  explicit LatexPieces(std::u32string_view text) : text_(text) {}

  struct Match {
    std::size_t end = 0;
    std::vector<LatexPiece> pieces;
  };

  /// A formula that begins at `at` ($$, \[, $, \(, " [" or, unless `boxed`, a \frac of numbers) and up to five more
  /// that "and", "or" or commas join. `boxed`: those with a \boxed{} in them. White space behind the last one belongs
  /// to it.
  std::optional<Match> match(std::size_t at, bool boxed);

  /// Whether anything can begin there.
  bool may_begin(std::size_t at) const;

 private:
  struct Span {
    std::size_t begin = 0, end = 0;  // of the content
    std::size_t close = 0;           // behind the closing mark
  };
  /// The last search for a closing mark: nothing between `from` and `to` closes.
  struct Search {
    std::size_t from = 1, to = 0;
  };

  char32_t at(std::size_t i) const { return i < text_.size() ? text_[i] : U'\0'; }
  bool follows(std::size_t i, std::u32string_view word) const { return text_.substr(i).starts_with(word); }
  std::size_t spaces(std::size_t i) const;
  std::optional<Span> span(std::size_t at, bool boxed);
  std::optional<Span> display_dollar(std::size_t at) const;
  std::optional<Span> inline_dollar(std::size_t at) const;
  std::optional<Span> backslashed(std::size_t at, char32_t close, bool one_line, Search& search) const;
  std::optional<Span> square(std::size_t at) const;
  std::optional<Span> fraction(std::size_t at) const;
  bool has_box(const Span& span);
  std::optional<std::size_t> one(std::size_t at, bool boxed, std::vector<LatexPiece>& into);

  std::u32string_view text_;
  Search bracket_, parenthesis_, box_;
};

bool is_space(char32_t c);

}  // namespace tandem::eval
