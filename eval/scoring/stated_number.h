// Numbers that short answers state. All are UTF-8 texts, LaTeX most of them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace tandem::eval {

/// A number as a fraction in lowest terms, the denominator above 0.
struct Rational {
  std::int64_t numerator = 0, denominator = 1;
  bool operator==(const Rational&) const = default;
};

/// The number that `text` is, and nothing beside it: 12, -0.50, .5, 12,345.6 (commas between groups of three only),
/// 3/4, \frac{3}{4}, \frac{3}4, with at most 18 digits in a whole number or a decimal. No spaces, no units. Leading
/// zeros are none of a number's unless `leading_zeros`: "010" may be of another base.
std::optional<Rational> plain_number(std::string_view text, bool leading_zeros = false);

/// The number that a short answer states: as plain_number(), with leading zeros, and besides $ and other currency
/// signs, "%", degrees, LaTeX spaces and \text{...}, a full stop at the end, what stands before the last "=" (but not
/// "x=4, y=" and "x \neq y ="), and words behind the number (units, which are not compared). None where such a word may
/// change the value ("thousand", "half", "and"), or is a single letter, or where anything else is left.
std::optional<Rational> stated_number(std::string_view text);

/// Whether a word behind a number makes it another one: "thousand", "half", "and". Lower case.
bool changes_value(std::string_view word);

}  // namespace tandem::eval
