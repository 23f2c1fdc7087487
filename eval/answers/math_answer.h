// Answers to mathematical problems as Math-Verify 0.9.0 finds and compares them: its parse() with the default
// configurations and its verify() with float_rounding 6, numeric_precision 15 and strict=True.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "eval/answers/expression.h"
#include "eval/answers/math_candidates.h"

namespace tandem::eval {

struct MathAnswer {
  Expr expression;                 // null where nothing could be read
  std::string text;                // what was read, normalised
  std::string first;               // the first match, whether it could be read or not: compared as a text
  std::optional<MathPlace> place;  // of the expression

  bool found() const { return expression || !first.empty(); }
};

/// The answer in a model's text: of the first kind of place that has one that can be read, the last. UTF-8; bytes that
/// are none count as U+FFFD.
MathAnswer find_math_answer(std::string_view text);

/// The answer that a file gives: a formula by itself, as "$formula$" in a text.
MathAnswer math_reference(std::string_view formula);

/// Whether an answer is right. Not symmetric: "x=5" is right for 5, and 5 for x=5, but "2x+z=5" is not for 5.
bool math_answers_equal(const MathAnswer& reference, const MathAnswer& answer);

}  // namespace tandem::eval
