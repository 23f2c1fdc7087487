// Where the answer to a problem is in a model's text, and whether it is right: rules of published extractors, in the
// one table of rules.cc. Of a kind's rules the first that finds something decides, and its name is kept with the score.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tandem::eval {

/// integer: AIME; number: GSM8K; letter: GPQA; expression: MATH.
enum class AnswerKind : std::uint8_t { integer, number, letter, expression };

inline constexpr const char* kGrader = "published-rules-3";  // changes with any verdict

struct AnswerRule {
  std::string_view name;
  std::string_view source;   // whose rule it is, with its version
  bool is_published = true;  // by itself, so that its score by itself can be compared with others' tables
};

/// The rules of a kind, in the order in which they are tried.
std::vector<AnswerRule> answer_rules(AnswerKind kind);

struct Graded {
  double score = 0;                                     // 1: right
  std::optional<std::string> rule;                      // that decided; nothing where none found an answer
  std::vector<std::pair<std::string, double>> by_rule;  // the score by each published rule alone
};

/// The score of a text: of what stands behind its last "</think>", or all of it (lm-evaluation-harness'
/// think_end_token). `reference` is as reference_answer() gives it. Any bytes can be graded, in time that is bounded
/// for each of them.
Graded grade_answer(std::string_view text, std::string_view reference, AnswerKind kind);

/// The answer that a file gives for a problem: behind its last "####" or in its box, or all of it. Nothing where it is
/// none of this kind: no whole number, number, letter from A to D, or empty.
std::optional<std::string> reference_answer(std::string_view text, AnswerKind kind);

}  // namespace tandem::eval
