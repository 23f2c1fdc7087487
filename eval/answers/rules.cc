#include "eval/answers/rules.h"

#include <array>

#include "eval/answers/math_answer.h"
#include "eval/answers/pattern.h"
#include "eval/answers/text_rules.h"
#include "eval/scoring/python_text.h"

namespace tandem::eval {
namespace {

struct TextRule {
  AnswerKind kind;
  AnswerRule rule;
  FoundText (*find)(std::string_view text);
};

/// GSM8K and GPQA. The rules that are not published by themselves stand where the published ones find what nobody meant
/// (an example's marker within a sentence) or nothing.
constexpr auto kTextRules = std::to_array<TextRule>({
    {AnswerKind::number, {"marked-line", "GSM8K's own solutions", false}, marked_line},
    {AnswerKind::number, {"strict-match", "lm-evaluation-harness 0.4.13, gsm8k"}, strict_match},
    {AnswerKind::number, {"cot-strict-match", "lm-evaluation-harness 0.4.13, gsm8k_cot"}, cot_strict_match},
    {AnswerKind::number, {"flexible-extract", "lm-evaluation-harness 0.4.13, gsm8k and gsm8k_cot"}, flexible_extract},
    {AnswerKind::letter, {"answer-line", "simple-evals ee3b031, gpqa_eval"}, answer_line},
    {AnswerKind::letter, {"boxed-letter", "the prompt's \\boxed{}", false}, boxed_letter},
    {AnswerKind::letter, {"answer-sentence", "lm-evaluation-harness 0.4.13, mmlu_pro"}, answer_sentence},
});

/// MATH and AIME: kinds of places in which Math-Verify looks, as MathPlace has them. They are one extractor with one
/// score, kMathVerify's.
constexpr std::string_view kMathVerify = "math-verify", kMathSource = "Math-Verify 0.9.0, default configuration";
constexpr auto kMathRules =
    std::to_array<std::string_view>({"math-verify final-answer", "math-verify boxed", "math-verify answer-colon",
                                     "math-verify answer", "math-verify anywhere"});

constexpr std::string_view kUnread = "math-verify text";  // nothing could be read: the first match is a text

bool is_math(AnswerKind kind) {
  return kind == AnswerKind::integer || kind == AnswerKind::expression;
}

bool same_text_answer(std::string_view found, std::string_view reference, AnswerKind kind) {
  return kind == AnswerKind::number ? same_number_text(found, reference) : found == reference;
}

std::string_view behind_thought(std::string_view text) {
  constexpr std::string_view kEnd = "</think>";
  const std::size_t at = text.rfind(kEnd);
  return at == text.npos ? text : text.substr(at + kEnd.size());
}

/// A text without \boxed{}: "Mark your answer with \boxed{}." holds no answer, and Math-Verify takes it for one.
std::string without_empty_boxes(std::string_view text) {
  static const Pattern empty_box(R"(\\(?:boxed|fbox)\{[ \t\n]*+\})", Pattern::Of::bytes);
  return empty_box.replaced(text, "");
}

Graded grade_math(std::string_view given, std::string_view reference) {
  Graded graded;
  const MathAnswer wanted = math_reference(reference);
  const std::string text = without_empty_boxes(given);
  const MathAnswer answer = find_math_answer(text);
  if (answer.found()) {
    graded.score = math_answers_equal(wanted, answer) ? 1 : 0;
    graded.rule = answer.place ? kMathRules.at(static_cast<std::size_t>(*answer.place)) : kUnread;
  }
  const bool is_same = text.size() == given.size();
  const bool upstream = is_same ? graded.score == 1 : math_answers_equal(wanted, find_math_answer(given));
  graded.by_rule.emplace_back(kMathVerify, upstream ? 1 : 0);
  return graded;
}

}  // namespace

std::vector<AnswerRule> answer_rules(AnswerKind kind) {
  std::vector<AnswerRule> rules;
  if (is_math(kind)) {
    rules.push_back({kMathVerify, kMathSource});
    for (const std::string_view name : kMathRules) rules.push_back({name, kMathSource, false});
    rules.push_back({kUnread, kMathSource, false});
  }
  for (const TextRule& one : kTextRules)
    if (one.kind == kind) rules.push_back(one.rule);
  return rules;
}

Graded grade_answer(std::string_view text, std::string_view reference, AnswerKind kind) {
  text = behind_thought(text);
  if (is_math(kind)) return grade_math(text, reference);
  Graded graded;
  for (const TextRule& one : kTextRules) {
    if (one.kind != kind) continue;
    const FoundText found = one.find(text);
    const double score = found && same_text_answer(*found, reference, kind) ? 1 : 0;
    if (found && !graded.rule) {
      graded.rule = one.rule.name;
      graded.score = score;
    }
    if (one.rule.is_published) graded.by_rule.emplace_back(one.rule.name, score);
  }
  return graded;
}

std::optional<std::string> reference_answer(std::string_view text, AnswerKind kind) {
  std::string answer(strip(text));
  switch (kind) {
    case AnswerKind::integer:
      if (answer.empty() || answer.find_first_not_of("0123456789") != answer.npos) return std::nullopt;
      return answer;
    case AnswerKind::number: {
      if (const std::size_t marker = answer.rfind("####"); marker != answer.npos)
        answer = strip(answer.substr(marker + 4));
      const std::string digits = replaced(replaced(answer, ",", ""), "$", "");
      const FoundText whole = flexible_extract(digits);
      const bool is_number = whole && *whole == digits && digits.find_first_of("0123456789") != digits.npos;
      return is_number ? std::optional(answer) : std::nullopt;
    }
    case AnswerKind::letter: {
      const FoundText letter = answer.find("\\boxed") != answer.npos ? boxed_letter(answer) : FoundText(answer);
      const auto choice = letter ? choice_of(*letter) : std::nullopt;
      return choice ? std::optional(std::string(1, *choice)) : std::nullopt;
    }
    case AnswerKind::expression:
      break;
  }
  return answer.empty() ? std::nullopt : std::optional(answer);
}

}  // namespace tandem::eval
