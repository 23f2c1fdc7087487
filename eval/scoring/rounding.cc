#include "eval/scoring/rounding.h"

#include <array>
#include <cmath>
#include <cstdlib>
#include <fmt/core.h>

namespace tandem::eval {
namespace {

/// Halves of more than 128 values; below that eight sums of every eighth value; one sum of fewer than eight.
double numpy_sum(std::span<const double> values) {
  constexpr std::size_t kSums = 8, kBlock = 128;
  const std::size_t n = values.size();
  if (n > kBlock) {
    const std::size_t half = n / 2 - n / 2 % kSums;
    return numpy_sum(values.first(half)) + numpy_sum(values.subspan(half));
  }
  double sum = 0;
  std::size_t at = 0;
  if (n >= kSums) {
    std::array<double, kSums> s{};
    for (; at + kSums <= n; at += kSums)
      for (std::size_t i = 0; i < kSums; ++i) s[i] += values[at + i];
    sum = ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
  }
  for (; at < n; ++at) sum += values[at];
  return sum;
}

}  // namespace

double python_round(double value, int digits) {
  return std::strtod(fmt::format("{:.{}f}", value, digits).c_str(), nullptr);
}

double numpy_percentage(std::span<const double> values) {
  const double mean = numpy_sum(values) / static_cast<double>(values.size());
  return std::nearbyint(100 * mean * 100) / 100;
}

}  // namespace tandem::eval
