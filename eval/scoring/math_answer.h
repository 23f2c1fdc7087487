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

/// The rule for MATH. Equal are answers that hendrycks_equal() calls so, unless what it leaves out says something ("5
/// \text{ or } 6", "5 \text{ million}", ">=5") or nothing is left of either (units alone); and beyond it
///   plain numbers of one value: 3/4 and 0.75, 10{,}080 and 10080, \frac{270}7 and 270/7
///   what only looks differently: \text{east} and east, \text{(C)} and C, 2516_{8} and 2516_8, x \in [0,1] and [0,1],
///   \, and other spaces, a full stop at the end
bool math_equal(std::string_view first, std::string_view second);

}  // namespace tandem::eval
