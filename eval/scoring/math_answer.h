// When two final answers of mathematics problems are equal. All are UTF-8 texts, LaTeX most of them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace tandem::eval {

/// is_equiv() of Hendrycks et al. 2021 (math_equivalence.py of github.com/hendrycks/math, 985bdc1), which MATH is
/// scored with: equal as texts once line ends, "\!", "\left", "\right", degrees, "\$", "\%", units ("\text{ " and what
/// follows), "x =" and spaces are gone, \dfrac and \tfrac are \frac, \sqrt3 and \frac12 have braces, a/b of whole
/// numbers is a fraction, .5 is 0.5 and a sole 0.5 one half. Quirk, kept: where Python would raise (two units, \frac at
/// the end), texts are equal as they are. Not a rule for arithmetic or algebra: "2+3" is not "5".
bool hendrycks_equal(std::string_view first, std::string_view second);

/// A number as a fraction in lowest terms, the denominator above 0.
struct Rational {
  std::int64_t numerator = 0, denominator = 1;
  bool operator==(const Rational&) const = default;
};

/// The number that `text` is, and nothing beside it: 12, -0.50, .5, 12,345.6 (commas between groups of three only),
/// 3/4, \frac{3}{4}, with at most 18 digits in a whole number or a decimal. No spaces, no units. Leading zeros are none
/// of a number's unless `leading_zeros`: "010" may be of another base.
std::optional<Rational> plain_number(std::string_view text, bool leading_zeros = false);

/// The number that a short answer states: as plain_number(), with leading zeros, and besides $ and other currency
/// signs, "%", degrees, LaTeX spaces and \text{...}, a full stop at the end, what stands before the last "=", and words
/// behind the number (units, which are not compared). None where such a word may change the value ("thousand", "half",
/// "and"), or is a single letter, or where anything else is left.
std::optional<Rational> stated_number(std::string_view text);

/// The rule for MATH: hendrycks_equal(), but two answers of which nothing is left (units alone) are not equal unless
/// they are the same text; or both are plain numbers of one value (3/4 and 0.75, 10,080 and 10080), which Hendrycks'
/// rule tells apart.
bool math_equal(std::string_view first, std::string_view second);

}  // namespace tandem::eval
