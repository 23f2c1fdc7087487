#include "eval/scoring/math_answer.h"

#include <gtest/gtest.h>
#include <string>
#include <vector>

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

TEST(MathAnswer, PlainNumbers) {
  const auto is = [](const char* text, std::int64_t above, std::int64_t below) {
    return plain_number(text) == Rational{above, below};
  };
  EXPECT_TRUE(is("12", 12, 1));
  EXPECT_TRUE(is("-0.50", -1, 2));
  EXPECT_TRUE(is(".5", 1, 2));
  EXPECT_TRUE(is("12,345.6", 61728, 5));
  EXPECT_TRUE(is("6/-8", -3, 4));
  EXPECT_TRUE(is("-\\frac{6}{8}", -3, 4));
  EXPECT_TRUE(is("-0", 0, 1));
  for (const char* none : {"",
                           "-",
                           ".",
                           "1.",
                           "1 2",
                           "1e5",
                           "1/0",
                           "1/",
                           "/2",
                           "1/2/3",
                           "1.5/2",
                           "12,34",
                           ",123",
                           "--1",
                           "1234567890123456789",
                           "\\frac{1}{2}3",
                           "\\frac{1}",
                           "\\frac{}{2}",
                           "x",
                           "5x",
                           "010"})
    EXPECT_FALSE(plain_number(none).has_value()) << none;
  EXPECT_EQ(plain_number("010", /*leading_zeros=*/true), (Rational{10, 1}));
}

TEST(MathAnswer, StatedNumbers) {
  for (const char* eighteen : {"18",
                               "18.",
                               "18.0",
                               "$18",
                               "\\$18",
                               "\\$18.00",
                               "018",
                               "18 dollars",
                               "18\\text{ dollars}",
                               "18\\text{dollars}",
                               "18 dollars per day.",
                               "18\\%",
                               "18^\\circ",
                               "\\text{18}",
                               "x = 18",
                               "3 \\times 6 = 18",
                               "\\frac{36}{2}",
                               "36/2",
                               "+18",
                               "\\textbf{18}",
                               "18\\ \\mathrm{km}",
                               "$18$",
                               "\u20ac18"})
    EXPECT_EQ(stated_number(eighteen), (Rational{18, 1})) << eighteen;
  for (const char* other : {"",
                            "18 thousand",
                            "18 and a half",
                            "18 half-hours",
                            "18x",
                            "18 m",
                            "18 to 20",
                            "18/2 dollars",
                            "18^2",
                            "18!",
                            "18 - 3",
                            "x \\ne 18 != 3",
                            "about 18",
                            "18, 19",
                            "18\\sqrt{2}",
                            "18\\pi",
                            "18 million dollars",
                            "18 eighths",
                            "18 more than x",
                            "18 lakh",
                            "18 Hundred",
                            "18-19",
                            "1 8",
                            "\\text{18",
                            "18 a.m. 5"})
    EXPECT_NE(stated_number(other), (Rational{18, 1})) << other;
  EXPECT_EQ(stated_number("1{,}000"), (Rational{1000, 1}));
  EXPECT_EQ(stated_number("12\\,345"), (Rational{12345, 1}));
  EXPECT_EQ(stated_number("-3"), (Rational{-3, 1}));
}

TEST(MathAnswer, AnotherNumberIsNeverStatedByADecoratedOne) {
  const std::vector<std::string> before = {"", "$", "\\$", "x = ", "2 + 2 = ", "\\text{", "-"},
                                 after = {"", ".", "%", " dollars", "\\text{ cm}", "^\\circ", ".0"};
  for (int n = 0; n < 1200; n += 7) {
    const Rational truth{n, 1};
    for (const std::string& b : before) {
      for (const std::string& a : after) {
        const std::string text = b + std::to_string(n) + a + (b == "\\text{" ? "}" : "");
        const Rational wanted{b == "-" ? -n : n, 1};
        EXPECT_EQ(stated_number(text), wanted) << text;
        EXPECT_NE(stated_number(text), (Rational{truth.numerator + 1, 1})) << text;
        EXPECT_NE(stated_number(b + std::to_string(n) + "1" + a + (b == "\\text{" ? "}" : "")), wanted) << text;
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
