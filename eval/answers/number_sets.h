// Sets of real numbers, as stretches of the line.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "eval/answers/expression.h"

namespace tandem::eval {

struct LineEnd {
  int infinite = 0;  // -1, 1, or 0: `value` counts
  Value value = Value(mpq_class(0));
};

struct Stretch {
  LineEnd low, high;  // equal ones that are closed: one number
  bool low_open = false, high_open = false;
};

/// From the lowest to the highest, none touching another.
using Line = std::vector<Stretch>;

/// A set of numbers and intervals, and unions, intersections and differences of such sets; nothing for other ones and
/// where an end is no real number.
std::optional<Line> line_of(const Expr& set);

/// Where a relation, or all relations of a chain, hold that are linear in the one symbol that they have. Functions
/// count as symbols. Nothing for other ones.
std::optional<Line> line_where(const Expr& relation);

bool same_line(const Line& a, const Line& b);

}  // namespace tandem::eval
