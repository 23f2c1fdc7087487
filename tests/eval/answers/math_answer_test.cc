#include "eval/answers/math_answer.h"

#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "eval/answers/latex_normal.h"
#include "eval/scoring/python_text.h"

namespace tandem::eval {
namespace {

bool equal(std::string_view reference, std::string_view answer) {
  return math_answers_equal(math_reference(reference), find_math_answer("\\boxed{" + std::string(answer) + "}"));
}

const std::vector<std::string> kForms = {"3",
                                         "-\\frac{1}{2}",
                                         "\\frac{x+1}{y}",
                                         "x^2+2x+1",
                                         "2\\sqrt{3}",
                                         "(1,2)",
                                         "[2,5)",
                                         "\\{1,2,3\\}",
                                         "3\\pi",
                                         "(3,\\frac{\\pi}{2},7)",
                                         "x=5",
                                         "\\frac{\\sqrt{5}-1}{2}",
                                         "1,-2",
                                         "x\\in[-2,7]",
                                         "(-\\infty,3)\\cup(5,\\infty)",
                                         "2+3i",
                                         "\\text{east}",
                                         "e^{i\\pi}",
                                         "\\log_2 x",
                                         "\\binom{5}{2}",
                                         "x<3",
                                         "1<x\\le 3",
                                         "f(x)",
                                         "10^{100}+1",
                                         "\\begin{pmatrix}1\\\\2\\end{pmatrix}",
                                         "5!",
                                         "50\\%",
                                         "|x-1|",
                                         "\\sin^2 x",
                                         "3\\pm\\sqrt{2}",
                                         "y=2x+1",
                                         "\\emptyset",
                                         "\\lfloor x\\rfloor",
                                         "x_1+x_2",
                                         "\\mathbb{R}"};

TEST(MathAnswer, EveryFormIsItself) {
  for (const std::string& form : kForms) {
    const MathAnswer read = math_reference(form);
    EXPECT_TRUE(read.expression) << form;
    EXPECT_TRUE(math_answers_equal(read, math_reference(form))) << form;
  }
}

TEST(MathAnswer, FormsAreDifferentAnswers) {
  for (const std::string& one : kForms)
    for (const std::string& two : kForms) EXPECT_EQ(equal(one, two), one == two) << one << " and " << two;
}

TEST(MathAnswer, LooksDoNotCount) {
  for (const std::string& form : kForms) {
    const auto with = [&](const char* from, const char* to) { return replaced(form, from, to); };
    for (const std::string& same :
         {with("\\frac", "\\dfrac"), with("\\frac", "\\tfrac"), with("(", "\\left("), with(")", "\\right)"),
          with("+", " + "), with(",", ", "), with("-", "\u2212"), with("2\\pi", "2\u03c0"), "\\displaystyle " + form,
          " " + form + " ", with("\\infty", "\\infty ")}) {
      EXPECT_TRUE(equal(form, same)) << form << " and " << same;
      EXPECT_TRUE(equal(same, form)) << same << " and " << form;
    }
  }
}

TEST(MathAnswer, AlgebraAndNumbers) {
  const std::pair<const char*, const char*> same[] = {
      {"1+x", "x+1"},
      {"(x+1)^2", "x^2+2x+1"},
      {"\\frac{1}{\\sqrt{2}}", "\\frac{\\sqrt{2}}{2}"},
      {"\\sin^2 x+\\cos^2 x", "1"},
      {"2^{2014}", "4^{1007}"},
      {"0.75", "3/4"},
      {"\\frac{1}{3}", "0.3333333"},
      {"10,080", "10080"},
      {"10{,}080", "10,\\!080"},
      {"1\\frac{1}{2}", "\\frac{3}{2}"},
      {"50\\%", "\\frac{1}{2}"},
      {"50\\%", "50"},
      {"36", "36^\\circ"},
      {"36", "\\$36"},
      {"864", "864 \\text{ inches}^2"},
      {"5", "x=5"},
      {"x=5", "5"},
      {"1,2,3", "\\{3,1,2\\}"},
      {"\\{1,2\\}", "1 \\text{ and } 2"},
      {"3\\pm\\sqrt{2}", "3+\\sqrt{2}, 3-\\sqrt{2}"},
      {"x>2", "2<x"},
      {"2x+4y=6", "x+2y=3"},
      {"1<x<3", "(1,3)"},
      {"[1,2]\\cup[2,3]", "[1,3]"},
      {"x\\ne 3", "(-\\infty,3)\\cup(3,\\infty)"},
      {"\\text{(C)}", "C"},
      {"\\text{Evelyn}", "Evelyn"},
      {"\\begin{pmatrix} 1 \\\\ 2 \\end{pmatrix}", "\\begin{bmatrix} 1 \\\\[4pt] 2 \\end{bmatrix}"},
      {"\\frac{270}7", "270/7"},
      {"\\binom{10}{3}", "120"},
      {"\\sqrt[3]{8}", "2"},
      {"f(x)+1", "1+f(x)"},
      {"2516_8", "2516_{8}"},
  };
  for (const auto& [one, two] : same) EXPECT_TRUE(equal(one, two)) << one << " and " << two;
  const std::pair<const char*, const char*> different[] = {
      {"2^{2014}", "2^{2014}-1"},
      {"10^{100}", "10^{100}+1"},
      {"\\frac{1}{3}", "0.333"},
      {"1", "1.01"},
      {"(2,4)", "(4,2)"},
      {"(2,5)", "[2,5)"},
      {"\\pi", "\\frac{355}{113}"},
      {"x+1", "y+1"},
      {"\\sqrt{x^2}", "x"},
      {"x=5", "y=5"},
      {"x>2", "x\\ge 2"},
      {"x>2", "x<2"},
      {"2x+z=5", "5"},
      {"\\text{east}", "\\text{west}"},
      {"\\{1,2\\}", "\\{1,2,3\\}"},
      {"e^{\\pi\\sqrt{163}}", "262537412640768744"},
      {"5", "5 \\text{ million}\\cdot 2"},
      {"\\begin{pmatrix} 1 \\\\ 2 \\end{pmatrix}", "\\begin{pmatrix} 1 & 2 \\end{pmatrix}"},
      {"\\frac{1}{0}", "\\frac{1}{0}x"},
  };
  for (const auto& [one, two] : different) EXPECT_FALSE(equal(one, two)) << one << " and " << two;
}

TEST(MathAnswer, DifferentNumbersAreNeverEqualInAnyForm) {
  const auto forms = [](int above, int below) {
    const std::string a = std::to_string(above), b = std::to_string(below), whole = a + "/" + b;
    return std::vector<std::string>{whole, "\\frac{" + a + "}{" + b + "}", "x = " + whole, " " + a + " / " + b + " "};
  };
  std::vector<std::pair<std::pair<int, int>, MathAnswer>> read;
  for (int a = -4; a <= 4; ++a)
    for (int b = 1; b <= 4; ++b)
      for (const std::string& form : forms(a, b)) read.push_back({{a, b}, math_reference(form)});
  for (const auto& [one, first] : read)
    for (const auto& [two, second] : read)
      EXPECT_EQ(math_answers_equal(first, second), one.first * two.second == two.first * one.second)
          << first.text << " and " << second.text;
}

TEST(MathAnswer, WhatIsNoNumberHasNoExpression) {  // as Math-Verify 0.9.0 reads them
  for (const char* text : {"0,500,500", "-0,500,500", "0,500.5", "0,500,500.25"}) {
    const MathAnswer read = math_reference(std::string("\\boxed{") + text + "}");
    EXPECT_FALSE(read.expression) << text;
    EXPECT_TRUE(equal(text, text)) << text;
  }
  for (const char* text : {"0,500", "0,500,500", "0,500.5"}) EXPECT_TRUE(equal(text, "0.5")) << text;  // as far as read
}

TEST(BoxedContent, BoxesThatStandTogetherAreOne) {
  EXPECT_EQ(boxed_content("\\boxed{3}, \\boxed{5} and \\boxed{7}", Boxes::last), "3,5,7");
  EXPECT_EQ(boxed_content("\\boxed{1} is one of many words here, so \\boxed{2}", Boxes::last), "1,2");
  EXPECT_EQ(boxed_content("\\boxed{1} is one of many words here \\boxed{2}", Boxes::last), "2");
  EXPECT_EQ(boxed_content("\\boxed{4} that is, once more, \\boxed{4}", Boxes::last), "4");
  EXPECT_EQ(boxed_content("\\boxed{1} far away in this text \\fbox{2}", Boxes::all), "1,2");
  EXPECT_EQ(boxed_content("\\boxed {\\frac{1}{2}}", Boxes::all), "\\frac{1}{2}");
  EXPECT_EQ(boxed_content("a \\boxed{1", Boxes::all), "{1");
  EXPECT_EQ(boxed_content("a \\boxed 2", Boxes::all), "2");
  EXPECT_EQ(boxed_content("none", Boxes::all), "none");
}

}  // namespace
}  // namespace tandem::eval
