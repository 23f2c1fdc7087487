// The final answer in a model's text, and whether it is right: grader version 2 of `tandem eval reasoning`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tandem::eval {

/// number: AIME and GSM8K; letter: GPQA; expression: MATH.
enum class AnswerKind : std::uint8_t { integer, number, letter, expression };

inline constexpr const char* kGrader = "hendrycks-and-rationals-2";  // changes with any verdict

/// Behind the last "</think>", or in all of a text that has none, the first of these that is there:
///   the last \boxed{...} that is not empty (or, without any, the last \fbox{...}), braces in braces included, or
///   "\boxed 5" up to the line's end or a $; a box that is not closed is no answer, and nothing else is then number:
///   what follows the last "####" in its line, as GSM8K writes its own answers what follows the last "answer is" or
///   "answer:" in its line, or the next one that is not empty (between $ or \( \)) number: the last number, unless it
///   is a part of something else (1/2, 2^10, 18 thousand)
std::optional<std::string> final_answer(std::string_view text, AnswerKind kind);

/// Whether an answer is right. integer and number: stated_number() of both are equal; letter: both are the same choice
/// ("D", "(D)", "\text{D}", "D) 10 eV"); expression: math_equal().
bool same_answer(std::string_view answer, std::string_view reference, AnswerKind kind);

/// "A" to "D" of a choice; 0 for what is none.
char choice_of(std::string_view answer);

}  // namespace tandem::eval
