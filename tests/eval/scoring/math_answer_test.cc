#include "eval/scoring/math_answer.h"

#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "eval/scoring/stated_number.h"

namespace tandem::eval {
namespace {

TEST(MathAnswer, TheWholeRuleKnowsNumbersAndWantsSomethingLeft) {
  EXPECT_TRUE(math_equal("3/4", "0.75"));
  EXPECT_TRUE(math_equal("\\dfrac{3}{4}", "\\frac{6}{8}"));
  EXPECT_TRUE(math_equal("-\\frac{1}{2}", "\\frac{-1}{2}"));
  EXPECT_TRUE(math_equal("10,080", "10080"));
  EXPECT_TRUE(math_equal("$5$", "5."));
  EXPECT_FALSE(math_equal("0.33", "1/3"));
  EXPECT_FALSE(math_equal("1,2", "12"));
  EXPECT_FALSE(math_equal("1234,567", "1234567"));
  EXPECT_FALSE(math_equal("010", "10")) << "may be of another base";
  EXPECT_FALSE(math_equal("x+1", "1+x")) << "no algebra";
  EXPECT_FALSE(hendrycks_equal("3/4", "0.75"));
  EXPECT_TRUE(hendrycks_equal("\\text{ yes}", "\\text{ no}")) << "upstream's, why the whole rule wants more";
  EXPECT_FALSE(math_equal("\\text{ yes}", "\\text{ no}"));
  EXPECT_FALSE(math_equal("", " "));
}

TEST(MathAnswer, WhatOnlyLooksDifferentIsEqual) {
  const std::pair<const char*, const char*> pairs[] = {
      {"\\$32{,}348", "\\$32,\\!348"},
      {"10{,}080", "10080"},
      {"10\\,080", "10,\\!080"},
      {"270/7", "\\frac{270}7\\text{ degrees}"},
      {"\\dfrac{270}{7}", "\\frac{270}7\\text{ degrees}"},
      {"C", "\\text{(C)}"},
      {"(C)", "\\text{(C)}"},
      {"\\text{C}", "\\text{(C)}"},
      {"Evelyn", "\\text{Evelyn}"},
      {"\\textbf{Evelyn}", "\\text{Evelyn}"},
      {"2516_{8}", "2516_8"},
      {"[-2,7]", "x \\in [-2,7]"},
      {"864", "864 \\mbox{ inches}^2"},
      {"864\\text{ in}^{2}", "864 \\mbox{ inches}^2"},
      {"x^{2}+1", "x^2+1"},
      {"(1,\\,2)", "(1,2)"},
      {"x^2+1.", "x^2+1"},
      {"50%", "50"},
      {"90\u00b0", "90"},
      {"\\text{5}", "5"},
      {"5 \\text{ or } 6", "5\\text{ or }6"},
  };
  for (const auto& [one, two] : pairs) {
    EXPECT_TRUE(math_equal(one, two)) << one << " and " << two;
    EXPECT_TRUE(math_equal(two, one)) << one << " and " << two;
  }
}

TEST(MathAnswer, WhatUpstreamLeavesOutMaySaySomething) {
  for (const char* wrong : {"5 \\text{ or } 6", "x=5 \\text{ or } x=6", "5 \\text{ and } 7", "5 \\text{ million}",
                            "5\\text{ is wrong, it is 6}", "5 \\text{ dozen}", "5\\text{ }2", "5\\mbox{ or }6", ">=5",
                            "<=5", "!=5", "2=5", "5\\text{ not}"}) {
    EXPECT_FALSE(math_equal(wrong, "5")) << wrong;
    EXPECT_FALSE(math_equal("5", wrong)) << wrong;
  }
  EXPECT_TRUE(math_equal("5 \\text{ cents}", "5"));
  EXPECT_TRUE(math_equal("x=5", "5"));
  EXPECT_TRUE(math_equal("\\text{east}", "east"));
  EXPECT_FALSE(math_equal("\\text{east}", "\\text{west}"));
  EXPECT_FALSE(math_equal("\\begin{pmatrix} 1 \\\\ 23 \\end{pmatrix}", "\\begin{pmatrix} 12 \\\\ 3 \\end{pmatrix}"));
}

TEST(MathAnswer, DifferentNumbersAreNeverEqualInAnyForm) {
  const auto forms = [](int above, int below) {
    const std::string a = std::to_string(above), b = std::to_string(below), whole = a + "/" + b;
    return std::vector<std::string>{whole,          "\\frac{" + a + "}{" + b + "}", "\\dfrac{" + a + "}{" + b + "}",
                                    "x = " + whole, " " + a + " / " + b + " ",      "\\left" + whole};
  };
  for (int a = -6; a <= 6; ++a) {
    for (int b = 1; b <= 5; ++b) {
      for (int c = -6; c <= 6; ++c) {
        for (int d = 1; d <= 5; ++d) {
          for (const std::string& one : forms(a, b))
            for (const std::string& two : forms(c, d))
              EXPECT_EQ(math_equal(one, two), a * d == c * b) << one << " and " << two;
        }
      }
    }
  }
}

TEST(MathAnswer, BytesOfAnyKindAreJudged) {
  std::string text;
  for (int i = 0; i < 20000; ++i) {
    constexpr const char* kParts[] = {"\\frac", "\\sqrt", "{", "}", "\\text{ ", "1", "/", "=",
                                      "\xff",   "\u03c0", ".", ",", "-",        " ", "\\"};
    text.clear();
    for (unsigned seed = static_cast<unsigned>(i) * 2654435761u, n = 0; n < 6;
         ++n, seed = seed * 1664525u + 1013904223u)
      text += kParts[(seed >> 16) % std::size(kParts)];
    if (!math_equal(text, text)) ADD_FAILURE() << text;
    plain_number(text);
    stated_number(text);
  }
}

}  // namespace
}  // namespace tandem::eval
