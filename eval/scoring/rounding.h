// Rounding as upstream's scripts do it: by Python for most, by NumPy for LongBench-E. The two differ.
#pragma once

#include <span>

namespace tandem::eval {

/// Python's round(value, digits): the nearest decimal of the exact binary value, so that 2.675 becomes 2.67.
double python_round(double value, int digits);

/// numpy.round(100 * numpy.mean(values), 2) of doubles: summed pairwise as NumPy sums them, and rounded after another
/// multiplication by 100, so that 2.675 becomes 2.68. There is a value at least.
double numpy_percentage(std::span<const double> values);

}  // namespace tandem::eval
