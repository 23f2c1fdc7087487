// LaTeX made ready for reading: latex2sympy2_extended 1.11.0's normalize_latex() as Math-Verify 0.9.0 calls it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tandem::eval {

/// Which boxes of a text are its answer: all of them, or those that stand together at its end.
enum class Boxes : unsigned char { all, last };

/// Where the brace that is open at `open` closes; npos where it does not.
std::size_t closing_brace(std::string_view text, std::size_t open);

/// The contents of \boxed{} and \fbox{}, with commas between; the text itself where it has none. `last`: the last box,
/// and boxes before it that stand less than 10 characters apart, or less than 70 with a comma, "and" or "or" between.
std::string boxed_content(std::string_view text, Boxes boxes);

/// The formula of a text: without box, $, \left and \right, quotes, units at its end; with "and" and "or" as commas,
/// braces around arguments of \frac and \sqrt, and so on. Beyond upstream's rules, the space of a row end "\\[4pt]" of
/// a matrix goes, too. A formula of more than 10,000 bytes is only stripped.
std::string normal_latex(std::string_view text, Boxes boxes);

inline constexpr std::size_t kLongestFormula = 10000;  // bytes

}  // namespace tandem::eval
