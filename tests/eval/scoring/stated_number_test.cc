#include "eval/scoring/stated_number.h"

#include <gtest/gtest.h>
#include <string>
#include <vector>

namespace tandem::eval {
namespace {

TEST(StatedNumber, PlainNumbers) {
  const auto is = [](const char* text, std::int64_t above, std::int64_t below) {
    return plain_number(text) == Rational{above, below};
  };
  EXPECT_TRUE(is("12", 12, 1));
  EXPECT_TRUE(is("-0.50", -1, 2));
  EXPECT_TRUE(is(".5", 1, 2));
  EXPECT_TRUE(is("12,345.6", 61728, 5));
  EXPECT_TRUE(is("6/-8", -3, 4));
  EXPECT_TRUE(is("-\\frac{6}{8}", -3, 4));
  EXPECT_TRUE(is("\\frac{270}7", 270, 7));
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
                           "\\frac{1}23",
                           "\\frac{}{2}",
                           "x",
                           "5x",
                           "010"})
    EXPECT_FALSE(plain_number(none).has_value()) << none;
  EXPECT_EQ(plain_number("010", /*leading_zeros=*/true), (Rational{10, 1}));
}

TEST(StatedNumber, StatedNumbers) {
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
                               "\u20ac18",
                               "18\u00b0",
                               "18\\degree",
                               "f(3, 6) = 18",
                               "1,000 - 982 = 18",
                               "\\left\\lceil 17.5 \\right\\rceil = 18"})
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
                            "18 a.m. 5",
                            "x=4, y=18",
                            "x \\neq y = 18",
                            "\\not= 18",
                            "\\le= 18",
                            "\\text{17 or }x=18",
                            "18 point five",
                            "18 divided by two"})
    EXPECT_NE(stated_number(other), (Rational{18, 1})) << other;
  EXPECT_EQ(stated_number("1{,}000"), (Rational{1000, 1}));
  EXPECT_EQ(stated_number("12\\,345"), (Rational{12345, 1}));
  EXPECT_EQ(stated_number("-3"), (Rational{-3, 1}));
  EXPECT_EQ(stated_number("\u22123"), (Rational{-3, 1}));
}

TEST(StatedNumber, AnotherNumberIsNeverStatedByADecoratedOne) {
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

}  // namespace
}  // namespace tandem::eval
