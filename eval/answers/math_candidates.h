// Places of a text where Math-Verify 0.9.0 looks for a mathematical answer (its parser.py, with the default
// LatexExtractionConfig and ExprExtractionConfig). Its regular expressions are matched by hand, so that the time is
// about linear in the text, whatever it holds.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::eval {

/// A formula between $, \[ or \( , as a whole or as the box it is.
struct LatexPiece {
  std::u32string text;
  bool is_percent = false;   // % or "percent" follows
  bool is_open_box = false;  // from the first \boxed{ to the last }: the box that counts is yet to be found
};

/// One match of one expression.
struct MathCandidate {
  std::size_t begin = 0, end = 0;  // characters
  std::vector<LatexPiece> latex;   // formulas that "and", "or" or commas join; empty: plain text
  std::string number;              // of plain text: "-1234.5", without thousands separators
  std::string expression;          // of plain text that is no number: "3/4"
  bool is_percent = false;         // of a number
};

/// Kinds of places, the first that has an answer counting.
enum class MathPlace : unsigned char { hope, boxed, answer_colon, answer, anywhere };
inline constexpr MathPlace kMathPlaces[] = {MathPlace::hope, MathPlace::boxed, MathPlace::answer_colon,
                                            MathPlace::answer, MathPlace::anywhere};

inline constexpr std::size_t kMostMathCandidates = 300;

/// At most that many matches in a text, the last one first; of those that end together the first to begin.
///   hope          "final answer is X. I hope" (Minerva's wording)
///   boxed         a formula with a \boxed{} in it, a \boxed{} by itself, or "final answer ... is X"
///   answer_colon  "answer: ... X", at most 50 characters between; plain text also behind the last "=" of 100
///   answer        the same without a colon
///   anywhere      any formula, number or plain expression
std::vector<MathCandidate> math_candidates(std::u32string_view text, MathPlace place);

}  // namespace tandem::eval
