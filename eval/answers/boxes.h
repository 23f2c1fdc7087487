// Boxes in a text: latex2sympy2_extended 1.11.0's extract_boxed_content().
#pragma once

#include <string>
#include <string_view>

namespace tandem::eval {

/// Which boxes of a text are its answer: all of them, or those that stand together at its end.
enum class Boxes : unsigned char { all, last };

/// The contents of \boxed{} and \fbox{}, with commas between; the text itself where it has none. `last`: the last box,
/// and boxes before it that stand less than 10 characters apart, or less than 70 with a comma, "and" or "or" between.
std::string boxed_content(std::string_view text, Boxes boxes);

}  // namespace tandem::eval
