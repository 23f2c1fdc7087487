// Numbers and expressions in plain text.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "eval/answers/math_candidates.h"
#include "eval/scoring/python_text.h"

namespace tandem::eval {

/// A text in which something is looked for.
class Characters {
 public:
  explicit Characters(std::u32string_view text) : text_(text) {}

 protected:
  char32_t at(std::size_t i) const { return i < text_.size() ? text_[i] : U'\0'; }
  bool follows(std::size_t i, std::u32string_view word) const {
    return i <= text_.size() && text_.substr(i).starts_with(word);
  }
  /// Behind the white space, or the digits, that begin there.
  std::size_t spaces(std::size_t i) const {
    while (is_space(at(i))) ++i;
    return i;
  }
  std::size_t digits(std::size_t i) const {
    while (is_digit(at(i))) ++i;
    return i;
  }

  std::u32string_view text_;
};

/// Finds numbers and expressions that begin at given places of one text, with the space or "=" before them.
class PlainPieces {
 public:
  explicit PlainPieces(std::u32string_view text);

  /// Whether the text may go on as it does behind a match.
  using Accept = std::function<bool(std::size_t end)>;

  /// An expression of digits and operators, at least one: the first accepted one, in the order in which Math-Verify's
  /// regular expression would try them.
  std::optional<MathCandidate> expression(std::size_t at, const Accept& accept) const;

  /// The same of a number with an optional currency sign.
  std::optional<MathCandidate> number(std::size_t at, const Accept& accept) const;

 private:
  std::u32string_view text_;
  std::vector<std::uint32_t> run_ends_;        // of each character: the end of the digits, operators, ... around it
  std::vector<std::uint32_t> next_operators_;  // of each character: the first operator that is not before it
};

}  // namespace tandem::eval
