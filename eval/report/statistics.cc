#include "eval/report/statistics.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/common/error.h"
#include "eval/ruler/random.h"

namespace tandem::eval {
namespace {

/// log of the number of ways to choose k of n.
double log_choose(double n, double k) {
  return std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1);
}

/// P(X >= k) for X binomial(n, p), 0 < p < 1.
double upper_tail(std::uint64_t k, std::uint64_t n, double p) {
  double sum = 0;
  for (std::uint64_t i = k; i <= n; ++i) {
    const double x = static_cast<double>(i), m = static_cast<double>(n);
    sum += std::exp(log_choose(m, x) + x * std::log(p) + (m - x) * std::log1p(-p));
  }
  return sum;
}

/// The p at which P(X >= k) is `tail`; the tail grows with p.
double solve_tail(std::uint64_t k, std::uint64_t n, double tail) {
  double low = 0, high = 1;
  for (int i = 0; i < 60; ++i) {  // 2^-60 is below the resolution of the tail
    const double middle = (low + high) / 2;
    (upper_tail(k, n, middle) < tail ? low : high) = middle;
  }
  return (low + high) / 2;
}

bool all_binary(std::span<const double> scores) {
  return std::all_of(scores.begin(), scores.end(), [](double s) { return s == 0 || s == 1; });
}

std::uint64_t ones(std::span<const double> scores) {
  return static_cast<std::uint64_t>(std::count(scores.begin(), scores.end(), 1.0));
}

}  // namespace

Interval wilson_interval(std::uint64_t successes, std::uint64_t n) {
  TANDEM_CHECK(n > 0 && successes <= n, "{} of {}", successes, n);
  const double count = static_cast<double>(n), p = static_cast<double>(successes) / count, z = kNormal95;
  const double scale = 1 + z * z / count, centre = p + z * z / (2 * count);
  const double half = z * std::sqrt(p * (1 - p) / count + z * z / (4 * count * count));
  // The ends are exactly 0 and 1 at no and all successes; rounding must not move them.
  return {successes == 0 ? 0.0 : std::max(0.0, (centre - half) / scale),
          successes == n ? 1.0 : std::min(1.0, (centre + half) / scale)};
}

Interval clopper_pearson_interval(std::uint64_t successes, std::uint64_t n) {
  TANDEM_CHECK(n > 0 && successes <= n, "{} of {}", successes, n);
  Interval interval{0, 1};
  if (successes > 0) interval.low = solve_tail(successes, n, 0.025);
  if (successes < n) interval.high = solve_tail(successes + 1, n, 0.975);
  return interval;
}

Interval bootstrap_mean_interval(std::span<const double> values, std::uint32_t resamples) {
  TANDEM_CHECK(!values.empty() && resamples > 0, "{} values, {} resamples", values.size(), resamples);
  Random random(20240404);
  std::vector<double> means(resamples);
  std::vector<std::uint32_t> drawn(values.size());
  for (double& m : means) {
    random.fill_below(values.size(), drawn);
    double sum = 0;
    for (const std::uint32_t i : drawn) sum += values[i];
    m = sum / static_cast<double>(values.size());
  }
  return {percentile(means, 0.025), percentile(means, 0.975)};
}

Interval bounded_mean_interval(std::span<const double> scores, double least, double most) {
  TANDEM_CHECK(!scores.empty(), "no scores");
  const double score = scores.front();
  if (std::any_of(scores.begin(), scores.end(), [score](double x) { return x != score; }))
    return bootstrap_mean_interval(scores);
  const double others = wilson_interval(0, scores.size()).high;
  return {score - others * (score - least), score + others * (most - score)};
}

Interval newcombe_paired_interval(const PairedCounts& counts) {
  const std::uint64_t n = counts.total();
  TANDEM_CHECK(n > 0, "no pairs");
  const double a = static_cast<double>(counts.both), b = static_cast<double>(counts.first_only);
  const double c = static_cast<double>(counts.second_only), d = static_cast<double>(counts.neither);
  const double count = static_cast<double>(n);
  const Interval first = wilson_interval(counts.both + counts.first_only, n);
  const Interval second = wilson_interval(counts.both + counts.second_only, n);
  const double p1 = (a + b) / count, p2 = (a + c) / count;
  // Correlation of the pairs, with Newcombe's continuity correction of its numerator where it is positive.
  const double margins = (a + b) * (c + d) * (a + c) * (b + d);
  double numerator = a * d - b * c;
  if (numerator > 0) numerator = std::max(numerator - count / 2, 0.0);
  const double phi = margins > 0 ? numerator / std::sqrt(margins) : 0.0;
  const auto reach = [phi](double x, double y) { return std::sqrt(std::max(0.0, x * x - 2 * phi * x * y + y * y)); };
  return {p1 - p2 - reach(p1 - first.low, second.high - p2), p1 - p2 + reach(first.high - p1, p2 - second.low)};
}

double mcnemar_mid_p(const PairedCounts& counts) {
  const std::uint64_t n = counts.first_only + counts.second_only;
  if (n == 0) return 1;
  const std::uint64_t more = std::max(counts.first_only, counts.second_only);
  return std::min(1.0, upper_tail(more, n, 0.5) + upper_tail(more + 1, n, 0.5));
}

double detectable_difference(std::uint64_t n, double discordant) {
  TANDEM_CHECK(n > 0 && discordant >= 0 && discordant <= 1, "{} pairs, {} discordant", n, discordant);
  constexpr double kNormal80 = 0.8416212335729143;  // standard normal quantile at 0.8
  const double pairs = static_cast<double>(n);
  // Where all that disagree favour one method, the difference is `differing`; below that, what the test needs.
  const auto needed = [&](double difference, double differing) {
    const double z =
        kNormal95 * std::sqrt(differing) + kNormal80 * std::sqrt(std::max(differing - difference * difference, 0.0));
    return z / std::sqrt(pairs);
  };
  const double differing = std::max(discordant, 1 / pairs);
  double low = 0, high = 1;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (middle < needed(middle, std::max(differing, middle)) ? low : high) = middle;
  }
  return (low + high) / 2;
}

double percentile(std::span<const double> values, double p) {
  TANDEM_CHECK(!values.empty() && p >= 0 && p <= 1, "{} values, p = {}", values.size(), p);
  std::vector<double> parted(values.begin(), values.end());
  const double rank = p * static_cast<double>(parted.size() - 1);
  const auto low = parted.begin() + static_cast<std::ptrdiff_t>(rank);
  std::nth_element(parted.begin(), low, parted.end());
  if (low + 1 == parted.end()) return *low;
  return *low + (rank - std::floor(rank)) * (*std::min_element(low + 1, parted.end()) - *low);
}

double mean(std::span<const double> values) {
  TANDEM_CHECK(!values.empty(), "no values");
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

const char* to_string(IntervalKind kind) {
  switch (kind) {
    case IntervalKind::wilson:
      return "Wilson score";
    case IntervalKind::bootstrap:
      return "bootstrap";
    case IntervalKind::newcombe:
      return "Newcombe paired score";
    case IntervalKind::paired_bootstrap:
      return "paired bootstrap";
  }
  return "unknown";
}

Estimate estimate_mean(std::span<const double> scores) {
  Estimate estimate{scores.size(), mean(scores), {}, IntervalKind::bootstrap};
  if (all_binary(scores)) {
    estimate.kind = IntervalKind::wilson;
    estimate.interval = wilson_interval(ones(scores), scores.size());
  } else {
    estimate.interval = bounded_mean_interval(scores, 0, 1);
  }
  return estimate;
}

PairedEstimate compare_paired(std::span<const double> first, std::span<const double> second) {
  TANDEM_CHECK(first.size() == second.size() && !first.empty(), "{} and {} scores", first.size(), second.size());
  PairedEstimate result;
  result.difference.n = first.size();
  std::vector<double> differences(first.size());
  for (std::size_t i = 0; i < first.size(); ++i) differences[i] = second[i] - first[i];
  result.difference.value = mean(differences);
  result.has_p = all_binary(first) && all_binary(second);
  if (!result.has_p) {
    result.difference.kind = IntervalKind::paired_bootstrap;
    result.difference.interval = bounded_mean_interval(differences, -1, 1);
    return result;
  }
  for (std::size_t i = 0; i < first.size(); ++i) {
    PairedCounts& counts = result.counts;
    ++(first[i] == 1 ? (second[i] == 1 ? counts.both : counts.first_only)
                     : (second[i] == 1 ? counts.second_only : counts.neither));
  }
  result.difference.kind = IntervalKind::newcombe;
  const Interval flipped = newcombe_paired_interval(result.counts);  // of first - second
  result.difference.interval = {-flipped.high, -flipped.low};
  result.p = mcnemar_mid_p(result.counts);
  const std::uint64_t disagree = result.counts.first_only + result.counts.second_only;
  result.detectable =
      detectable_difference(first.size(), static_cast<double>(disagree) / static_cast<double>(first.size()));
  return result;
}

}  // namespace tandem::eval
