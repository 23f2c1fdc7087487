#include "eval/answers/rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>

#include "eval/answers/text_rules.h"

namespace tandem::eval {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

struct Judged {
  double score;
  std::string rule;
  bool operator==(const Judged&) const = default;
};

Judged verdict(std::string_view said, std::string_view reference, AnswerKind kind) {
  const Graded graded = grade_answer(said, reference, kind);
  return {graded.score, graded.rule.value_or("none")};
}

Judged gsm8k(std::string_view said) {
  return verdict(said, "540", AnswerKind::number);
}
Judged gpqa(std::string_view said) {
  return verdict(said, "D", AnswerKind::letter);
}
Judged math(std::string_view said, std::string_view reference) {
  return verdict(said, reference, AnswerKind::expression);
}

std::ostream& operator<<(std::ostream& out, const Judged& v) {
  return out << v.score << " by " << v.rule;
}

TEST(AnswerRules, Gsm8kTakesMarkerThenSentenceThenLastNumber) {
  EXPECT_EQ(gsm8k("so much.\n#### 540"), (Judged{1, "marked-line"}));
  EXPECT_EQ(gsm8k("so much.\n#### 540# Answers\n\n#### Steps\nTherefore 25/14."), (Judged{1, "marked-line"}));
  EXPECT_EQ(gsm8k("#### 540\n\nQuestion: more?\n#### 4"), (Judged{1, "marked-line"})) << "text that goes on";
  EXPECT_EQ(gsm8k("An example ends in #### 6. Here:\n#### 540"), (Judged{1, "marked-line"}));
  EXPECT_EQ(gsm8k("It is #### 540 in the end, not 6"), (Judged{1, "strict-match"}));
  EXPECT_EQ(gsm8k("The answer is 540. Not 6."), (Judged{1, "cot-strict-match"}));
  EXPECT_EQ(gsm8k("The answer is 6. Not 540."), (Judged{0, "cot-strict-match"})) << "no union of rules";
  EXPECT_EQ(gsm8k("**540** meters a week"), (Judged{1, "flexible-extract"}));
  EXPECT_EQ(gsm8k("it costs $540."), (Judged{1, "flexible-extract"}));
  EXPECT_EQ(gsm8k("#### $540"), (Judged{1, "flexible-extract"})) << "the marker wants digits";
  EXPECT_EQ(gsm8k("540.00"), (Judged{0, "flexible-extract"})) << "texts are compared, as the harness does";
  EXPECT_EQ(gsm8k("many"), (Judged{0, "none"}));
  EXPECT_EQ(verdict("#### 1,234", "1234", AnswerKind::number), (Judged{1, "marked-line"}));
}

TEST(AnswerRules, PublishedRulesHaveScoresByThemselves) {
  const Graded graded =
      grade_answer("An example ends in #### 6. The answer is 7.\n#### 540", "540", AnswerKind::number);
  EXPECT_EQ(graded.score, 1);
  EXPECT_THAT(graded.by_rule,
              ElementsAre(Pair("strict-match", 0), Pair("cot-strict-match", 0), Pair("flexible-extract", 1)));
  EXPECT_THAT(grade_answer("answer: A, so \\boxed{D}", "D", AnswerKind::letter).by_rule,
              ElementsAre(Pair("answer-line", 0), Pair("answer-sentence", 0)));
  EXPECT_THAT(grade_answer("\\boxed{2}", "2", AnswerKind::integer).by_rule, ElementsAre(Pair("math-verify", 1)));
  for (const AnswerKind kind : {AnswerKind::integer, AnswerKind::number, AnswerKind::letter, AnswerKind::expression}) {
    std::set<std::string_view> names;
    for (const AnswerRule& rule : answer_rules(kind)) {
      EXPECT_TRUE(names.insert(rule.name).second) << rule.name;
      EXPECT_FALSE(rule.source.empty());
    }
  }
}

TEST(AnswerRules, GpqaTakesAnswerLineThenBoxThenSentence) {
  EXPECT_EQ(gpqa("**Reasoning** ...\nAnswer: D"), (Judged{1, "answer-line"}));
  EXPECT_EQ(gpqa("[answer: D]"), (Judged{1, "answer-line"}));
  EXPECT_EQ(gpqa("ANSWER :\t$D$"), (Judged{1, "answer-line"}));
  EXPECT_EQ(gpqa("Answer: d"), (Judged{0, "answer-line"})) << "simple-evals compares letters as they are";
  EXPECT_EQ(gpqa("Answer: A\n\nno, \\boxed{D}"), (Judged{0, "answer-line"})) << "no union of rules";
  for (const char* box : {"D", "D - a risk score", "D \u2014 a risk score", "D: a risk score", "D. 10^{-4} eV",
                          "\\text{D}", "(D)", "\\textbf{(D) 10 eV}", "D) A = 3, B = 4", "\\mathrm{D}", "Option D"})
    EXPECT_EQ(gpqa(std::string("so \\boxed{") + box + "}"), (Judged{1, "boxed-letter"})) << box;
  EXPECT_EQ(gpqa("\\boxed{D}, since the energy is \\boxed{10^{-4} eV}."), (Judged{1, "boxed-letter"}));
  EXPECT_EQ(gpqa("The correct answer is D - a risk score"), (Judged{1, "answer-sentence"}));
  EXPECT_EQ(gpqa("the answer is (D) as said"), (Judged{1, "answer-sentence"}));
  EXPECT_EQ(gpqa("It must be D."), (Judged{0, "none"}));
}

TEST(AnswerRules, ChoicesAreOneLetterWithText) {
  for (const char* d : {"D", "(D)", "d", "\\text{D}", "$D$", "D.", "D) 10^-4 eV", "(D) 10", "**D**", "D) Vitamin C",
                        "(D) acid, organic", "(D) A = 3, B = 4", "D, a text", "option d"})
    EXPECT_EQ(choice_of(d), 'D') << d;
  for (const char* none : {"", "E", "DNA", "A or D", "AD", "(D", "10^-4 eV", "A, D", "(A), (D)", "(A) (D)", "A) or D)",
                           "A. and B", "A)/B)", "(a) or (d)", "D-glucose", "()", "\\text{"})
    EXPECT_EQ(choice_of(none), std::nullopt) << none;
}

TEST(AnswerRules, MathTakesWhatMathVerifyTakes) {
  EXPECT_EQ(math("The solutions are \\boxed{3}, \\boxed{5}, \\boxed{7}.", "3, 5, 7"), (Judged{1, "math-verify boxed"}));
  EXPECT_EQ(math("\\boxed{5}. Checking: the answer is \\boxed{5}.", "5"), (Judged{1, "math-verify boxed"}));
  EXPECT_EQ(math("The value is $\\boxed{5}$. I marked it with \\boxed so.", "5"), (Judged{1, "math-verify boxed"}));
  EXPECT_EQ(math("The value is \\boxed{5}. Mark your answer with \\boxed{ }.", "5"), (Judged{1, "math-verify boxed"}));
  EXPECT_EQ(
      grade_answer("The value is \\boxed{5}. Mark your answer with \\boxed{}.", "5", AnswerKind::expression).by_rule,
      (std::vector<std::pair<std::string, double>>{{"math-verify", 0}}))
      << "Math-Verify by itself reads the empty box";
  EXPECT_EQ(math("The final answer is $[2,5)$. I hope it is correct.", "[2,5)"),
            (Judged{1, "math-verify final-answer"}));
  EXPECT_EQ(math("Answer: $x = 5$", "5"), (Judged{1, "math-verify answer-colon"}));
  EXPECT_EQ(math("our answer is $\\boxed 2$.", "2"), (Judged{1, "math-verify answer"}));
  EXPECT_EQ(math("all in all 1,234 of them", "1234"), (Judged{1, "math-verify anywhere"}));
  EXPECT_EQ(math("\\boxed{\\frac}", "\\frac"), (Judged{1, "math-verify text"})) << "unread texts are compared";
  EXPECT_EQ(math("", "5"), (Judged{0, "none"}));
  EXPECT_EQ(verdict("\\boxed{004}", "4", AnswerKind::integer), (Judged{1, "math-verify boxed"}));
}

TEST(AnswerRules, WhatWasThoughtIsNotSaid) {
  EXPECT_EQ(math("<think>\\boxed{1}</think> It is \\boxed{2}.", "2").score, 1);
  EXPECT_EQ(math("<think>\\boxed{1}</think> It is two.", "1").score, 0);
  EXPECT_EQ(math("<think>\\boxed{1}", "1").score, 1) << "without an end all is the answer";
  EXPECT_EQ(gsm8k("<think>\n#### 540</think> none"), (Judged{0, "none"}));
}

TEST(AnswerRules, ReferencesAreOfTheirKind) {
  EXPECT_EQ(reference_answer("so\n#### 1,234 ", AnswerKind::number), "1,234");
  EXPECT_EQ(reference_answer("18", AnswerKind::number), "18");
  EXPECT_EQ(reference_answer("-0.5", AnswerKind::number), "-0.5");
  EXPECT_EQ(reference_answer("\\boxed{(c)}", AnswerKind::letter), "C");
  EXPECT_EQ(reference_answer("B", AnswerKind::letter), "B");
  EXPECT_EQ(reference_answer("073", AnswerKind::integer), "073");
  EXPECT_EQ(reference_answer(" x+1\n", AnswerKind::expression), "x+1");
  for (const char* none : {"", "many", "5 - 3", "1/2", "2^10", "1e20", "it is 18"})
    EXPECT_EQ(reference_answer(none, AnswerKind::number), std::nullopt) << none;
  EXPECT_EQ(reference_answer("-3", AnswerKind::integer), std::nullopt);
  EXPECT_EQ(reference_answer("\\boxed{E}", AnswerKind::letter), std::nullopt);
  EXPECT_EQ(reference_answer("  ", AnswerKind::expression), std::nullopt);
}

/// Texts that a model may come to, or that someone makes: an answer or none, in bounded time and memory.
TEST(AnswerRules, AnyTextIsGraded) {
  const auto many = [](const std::string& part, int times) {
    std::string out;
    for (int i = 0; i < times; ++i) out += part;
    return out;
  };
  const std::vector<std::string> texts = {
      "\\boxed{" + std::string(200000, '{'),
      many("\\boxed{", 30000),
      "\\boxed{" + std::string(5000, '{') + "x" + std::string(5000, '}') + "}",
      "$" + std::string(900, '(') + "x" + std::string(900, ')') + "$",
      std::string(200000, '$'),
      many("\\[ x ", 40000),
      many("\\( x ", 40000),
      many("answer: ", 20000),
      many("final answer is ", 12000),
      "answer = " + std::string(100000, ' '),
      many("1 ", 100000),
      many("1+", 50000) + "1",
      "final answer is 1+" + many("1 ", 50000) + "= I",
      std::string(200000, '9'),
      "$10^{10^{10^{10}}}$",
      "$((10!)!)! + \\binom{10^9}{10^8} + \\Gamma(10^{99}) + \\sin(10^{10^9})$",
      "$" + std::string(900, '-') + "1$",
      "$" + many("2^{", 80) + "2" + std::string(80, '}') + "$",
      "$" + many("(2^{65000}+1)", 60) + "$",
      many("$abc\\sqrt$ ", 3000),
      "$1E99999 + 1E-99999 + 1E999999999999$",
      "#### " + std::string(100000, ','),
      "Answer:" + std::string(100000, '\t'),
      std::string("The answer is \\boxed{5\0}", 24),
      "\\boxed{\xff\3765}",  // octal: "\xfe5" would be one escape
      many("\xf0\x80\xff", 30000),
  };
  for (const std::string& text : texts) {
    for (const AnswerKind kind : {AnswerKind::number, AnswerKind::letter, AnswerKind::expression}) {
      const Graded graded = grade_answer(text, "5", kind);
      EXPECT_TRUE(graded.score == 0 || graded.rule.has_value()) << text.substr(0, 60);
      grade_answer("\\boxed{5}", text.substr(0, 20000), kind);
    }
  }
}

TEST(AnswerRules, PiecesInAnyOrderAreGraded) {
  constexpr const char* kParts[] = {"\\frac", "\\sqrt", "{",  "}",       "\\text{", "1",        "/",      "=", "\xff",
                                    "\u03c0", ".",      ",",  "-",       " ",       "\\",       "$",      "^", "_",
                                    "(",      ")",      "[",  "answer:", "is",      "\\boxed{", "%",      "x", "\\pm",
                                    "\\cup",  "!",      "\n", "####",    "|",       "\\infty ", "\\sin ", "e", "\\in "};
  std::uint64_t state = 1;
  for (int i = 0; i < 8000; ++i) {
    std::string text;
    for (int n = 0; n < 10; ++n) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      text += kParts[(state >> 33) % std::size(kParts)];
    }
    for (const AnswerKind kind : {AnswerKind::number, AnswerKind::letter, AnswerKind::expression})
      grade_answer(text, text, kind);
  }
}

}  // namespace
}  // namespace tandem::eval
