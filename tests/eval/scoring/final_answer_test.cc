#include "eval/scoring/final_answer.h"

#include <gtest/gtest.h>

namespace tandem::eval {
namespace {

using Found = std::optional<std::string>;

Found expression(std::string_view text) {
  return final_answer(text, AnswerKind::expression);
}

TEST(FinalAnswer, IsTheLastBox) {
  EXPECT_EQ(expression("so \\boxed{1}, no: \\boxed{\\frac{1}{2}}."), Found("\\frac{1}{2}"));
  EXPECT_EQ(expression("\\boxed{\\left\\{1, 2\\right.}"), Found("\\left\\{1, 2\\right.")) << "an escaped brace is none";
  EXPECT_EQ(expression("\\boxed{\\{1\\}}"), Found("\\{1\\}"));
  EXPECT_EQ(expression("\\boxed {5}"), Found("5"));
  EXPECT_EQ(expression("$\\boxed 5$ it is"), Found("5"));
  EXPECT_EQ(expression("\\fbox{7}"), Found("7"));
  EXPECT_EQ(expression("\\boxed{5} then \\fbox{7}"), Found("5"));
  EXPECT_EQ(expression("\\boxed{}"), Found(""));
  EXPECT_EQ(expression("\\boxed{5}. (The final answer in \\boxed{} above.)"), Found("5"));
  EXPECT_EQ(expression("\\boxed{5} then \\boxed{6"), Found()) << "not closed";
  EXPECT_EQ(expression("the answer is 3, \\boxed"), Found());
}

TEST(FinalAnswer, WhatWasThoughtIsNotSaid) {
  EXPECT_EQ(expression("<think>\\boxed{1}</think> It is \\boxed{2}."), Found("2"));
  EXPECT_EQ(expression("<think>\\boxed{1}</think> It is two."), Found());
  EXPECT_EQ(expression("<think>\\boxed{1}"), Found("1")) << "without an end all is the answer";
}

TEST(FinalAnswer, OtherFormsWhereThereIsNoBox) {
  EXPECT_EQ(expression("The answer is 3/4.\nBye"), Found("3/4"));
  EXPECT_EQ(expression("**Answer:** $x+1$ of course"), Found("x+1"));
  EXPECT_EQ(expression("Nothing to see, 5"), Found());
  EXPECT_EQ(final_answer("5 + 5\n#### 1,234\nDone", AnswerKind::number), Found("1,234"));
  EXPECT_EQ(final_answer("it costs $1,234.50.", AnswerKind::number), Found("$1,234.50"));
  EXPECT_EQ(final_answer("a range of 3-5", AnswerKind::number), Found("5"));
  EXPECT_EQ(final_answer("is -5", AnswerKind::number), Found("-5"));
  EXPECT_EQ(final_answer("no number", AnswerKind::number), Found());
  for (const char* part : {"so 1/2", "It is 2^10.", "so 1.5e3", "It takes 3:45", "some 18 thousand", "a_3"})
    EXPECT_EQ(final_answer(part, AnswerKind::number), Found()) << part;
  EXPECT_EQ(final_answer("Total:18 apples", AnswerKind::number), Found("18"));
  EXPECT_EQ(final_answer("He ran 18 times.", AnswerKind::number), Found("18"));
  EXPECT_EQ(expression("**Answer**: 7"), Found("7"));
  EXPECT_EQ(expression("**Final Answer:**\n\n**7**\nBye"), Found("7"));
  EXPECT_EQ(expression("The answer is \\(x+1\\)."), Found("x+1"));
  EXPECT_EQ(expression("Answer: `D`"), Found("D"));
  EXPECT_EQ(final_answer("", AnswerKind::number), Found());
  EXPECT_EQ(final_answer("it is 204", AnswerKind::integer), Found()) << "AIME's answers are asked for in a box";
}

TEST(FinalAnswer, Choices) {
  for (const char* d : {"D", "(D)", "d", "\\text{D}", "\\text{(D)}", "$D$", "D.", "D) 10^-4 eV", "(D) 10",
                        "\\mathrm{D}", "**D**", "D) Vitamin C", "(D) acid, organic", "\\textrm{D}", "\\underline{D}",
                        "(D) A = 3, B = 4", "(D) B or a bigger one"})
    EXPECT_EQ(choice_of(d), 'D') << d;
  for (const char* none : {"",          "E",     "DNA",      "A or D",     "AD",       "(D",
                           "10^-4 eV",  "A, D",  "(A), (D)", "(A) (D)",    "A) or D)", "A) or D",
                           "A. and B",  "A)/B)", "A) OR D",  "(a) or (d)", "A) or b)", "A) \\text{ and } \\text{D}",
                           "D-glucose", "()",    "\\text{"})
    EXPECT_EQ(choice_of(none), '\0') << none;
  for (const char one : {'A', 'B', 'C', 'D'})
    for (const char two : {'A', 'B', 'C', 'D'})
      EXPECT_EQ(same_answer("(" + std::string(1, one) + ")", std::string(1, two), AnswerKind::letter), one == two);
  EXPECT_FALSE(same_answer("E", "E", AnswerKind::letter));
}

TEST(FinalAnswer, KindsHaveTheirOwnRules) {
  EXPECT_TRUE(same_answer("073", "73", AnswerKind::integer));
  EXPECT_FALSE(same_answer("x", "x", AnswerKind::integer)) << "no number";
  EXPECT_TRUE(same_answer("\\$18.00", "18", AnswerKind::number));
  EXPECT_TRUE(same_answer("p-q", "p - q", AnswerKind::expression));
  EXPECT_FALSE(same_answer("p-q", "q-p", AnswerKind::expression));
}

}  // namespace
}  // namespace tandem::eval
