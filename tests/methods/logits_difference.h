// Where the logits of two runs part. A choice between two that are nearly equal, which another order of sums makes the
// other way, leaves one row at one step, from rounding to something large; a kernel that is wrong differs everywhere,
// or from the first step on.
#pragma once

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <limits>
#include <span>
#include <string>
#include <vector>

namespace tandem::testing {

/// NaN is as far from everything as can be.
inline double distance(float a, float b) {
  const double apart = std::abs(double{a} - double{b});
  return std::isnan(apart) ? std::numeric_limits<double>::infinity() : apart;
}

inline double largest_difference(std::span<const float> a, std::span<const float> b) {
  EXPECT_EQ(a.size(), b.size());
  double worst = 0;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) worst = std::max(worst, distance(a[i], b[i]));
  return worst;
}

/// Logits [step][rows * vocab] that are nowhere further apart than `tolerance`; else the first step and row that are,
/// the token that is most, and how far apart all else is: before, beside and behind.
inline ::testing::AssertionResult logits_agree(const std::vector<std::vector<float>>& found,
                                               const std::vector<std::vector<float>>& expected, std::size_t rows,
                                               double tolerance) {
  if (found.size() != expected.size())
    return ::testing::AssertionFailure() << found.size() << " steps instead of " << expected.size();
  double before = 0;
  for (std::size_t step = 0; step < found.size(); ++step) {
    const std::vector<float>&f = found[step], &e = expected[step];
    if (f.size() != e.size() || f.size() % rows != 0)
      return ::testing::AssertionFailure() << "step " << step << ": " << f.size() << " logits instead of " << e.size();
    const std::size_t vocab = f.size() / rows;
    std::vector<double> apart;
    for (std::size_t row = 0; row < rows; ++row)
      apart.push_back(
          largest_difference(std::span(f).subspan(row * vocab, vocab), std::span(e).subspan(row * vocab, vocab)));
    const auto wrong = std::find_if(apart.begin(), apart.end(), [&](double d) { return !(d <= tolerance); });
    if (wrong == apart.end()) {
      before = std::max(before, *std::max_element(apart.begin(), apart.end()));
      continue;
    }
    const auto row = static_cast<std::size_t>(wrong - apart.begin());
    std::size_t token = 0;
    for (std::size_t t = 0; t < vocab; ++t)
      if (distance(f[row * vocab + t], e[row * vocab + t]) >= *wrong) token = t;
    std::string others, later;
    for (std::size_t r = 0; r < rows; ++r)
      if (r != row) others += fmt::format(" row {}: {:.2g}", r, apart[r]);
    for (std::size_t s = step + 1; s < found.size(); ++s)
      later += fmt::format(" {:.2g}", largest_difference(found[s], expected[s]));
    return ::testing::AssertionFailure() << fmt::format(
               "logits part at step {}, row {}: by {:.2g}, more than {:.2g} (token {}: {} instead of {}). Steps before "
               "it: at most {:.2g}. In this step:{}. In later steps:{}",
               step, row, *wrong, tolerance, token, f[row * vocab + token], e[row * vocab + token], before,
               others.empty() ? " no other row" : others, later.empty() ? " none" : later);
  }
  return ::testing::AssertionSuccess();
}

}  // namespace tandem::testing
