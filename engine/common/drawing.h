// What numbers that are drawn are made of: mixed words, and the standard normal distribution. The same bits on every
// machine for the words; results depend on every bit of both, so nothing here may change them.
#pragma once

#include <cmath>
#include <cstdint>

namespace tandem {

/// splitmix64's finaliser (Steele, Lea, Flood 2014).
constexpr std::uint64_t finalise64(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/// One step of splitmix64: turns any 64-bit state into a well mixed word.
constexpr std::uint64_t mix64(std::uint64_t x) {
  return finalise64(x + 0x9e3779b97f4a7c15u);
}

/// Where in [low, high] a function that grows reaches `target`.
double bisect(double low, double high, const auto& rising, double target) {
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (rising(middle) < target ? low : high) = middle;
  }
  return (low + high) / 2;
}

/// The probability that a standard normal variable lies below x.
inline double normal_below(double x) {
  return 0.5 * std::erfc(-x / std::sqrt(2.0));
}

/// The x from -edge to edge below which it lies with probability p. The edge is part of the result's last bits: it is
/// what bisection comes to. In the lower tail most of its steps need no look at the distribution.
inline double normal_quantile_within(double edge, double p) {
  if (!(p > 1e-12 && p < 0.5)) return bisect(-edge, edge, normal_below, p);
  // Abramowitz and Stegun 26.2.23, within 4.5e-4, and three Newton steps.
  const double t = std::sqrt(-2 * std::log(p));
  double x = (2.515517 + t * (0.802853 + t * 0.010328)) / (1 + t * (1.432788 + t * (0.189269 + t * 0.001308))) - t;
  for (int i = 0; i < 3; ++i) x -= (normal_below(x) - p) * std::sqrt(2 * M_PI) * std::exp(x * x / 2);
  constexpr double kSurely = 1e-12;
  const auto rising = [x](double at) { return at < x - kSurely ? 0.0 : at > x + kSurely ? 1.0 : normal_below(at); };
  return bisect(-edge, edge, rising, p);
}

}  // namespace tandem
