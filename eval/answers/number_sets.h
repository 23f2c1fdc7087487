// Sets of real numbers.
#pragma once

#include <optional>

#include "eval/answers/expression.h"

namespace tandem::eval {

/// Whether two expressions mean the same numbers. Each is a set of numbers and intervals, a union, intersection or
/// difference of such sets, or a relation, or a chain of them, that is linear in the one symbol that it has, functions
/// counting as symbols. Nothing for other ones, and where an end is no real number.
std::optional<bool> same_numbers(const Expr& a, const Expr& b);

}  // namespace tandem::eval
