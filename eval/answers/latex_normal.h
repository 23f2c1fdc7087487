// LaTeX made ready for reading: latex2sympy2_extended 1.11.0's normalize_latex() as Math-Verify 0.9.0 calls it.
#pragma once

#include <string>
#include <string_view>

#include "eval/answers/boxes.h"

namespace tandem::eval {

/// The formula of a text: without box, $, \left and \right, quotes, units at its end; with "and" and "or" as commas,
/// braces around arguments of \frac and \sqrt, and so on. Beyond upstream's rules, the space of a row end "\\[4pt]" of
/// a matrix goes, too. A formula of more than 10,000 bytes is only stripped.
std::string normal_latex(std::string_view text, Boxes boxes);

inline constexpr std::size_t kLongestFormula = 10000;  // bytes

}  // namespace tandem::eval
