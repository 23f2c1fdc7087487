#include "eval/report/statistics.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <vector>

#include "engine/common/drawing.h"
#include "engine/common/error.h"
#include "eval/ruler_tasks/random.h"

namespace tandem::eval {
namespace {

/// P(X >= k) for X binomial(n, p), 0 < p < 1.
double upper_tail(std::uint64_t k, std::uint64_t n, double p) {
  double sum = 0;
  const double m = static_cast<double>(n);
  for (std::uint64_t i = k; i <= n; ++i) {
    const double x = static_cast<double>(i);
    const double log_ways = std::lgamma(m + 1) - std::lgamma(x + 1) - std::lgamma(m - x + 1);
    sum += std::exp(log_ways + x * std::log(p) + (m - x) * std::log1p(-p));
  }
  return sum;
}

bool all_binary(std::span<const double> scores) {
  return std::ranges::all_of(scores, [](double s) { return s == 0 || s == 1; });
}

bool all_alike(std::span<const double> values) {
  return std::ranges::all_of(values, [&](double x) { return x == values.front(); });
}

/// Weights that may be left out: then all are 1.
std::vector<double> weights_of(std::span<const double> weights, std::size_t n) {
  TANDEM_CHECK(weights.empty() || weights.size() == n, "{} weights of {} values", weights.size(), n);
  return weights.empty() ? std::vector<double>(n, 1) : std::vector<double>(weights.begin(), weights.end());
}

double weighted_mean(std::span<const double> values, std::span<const double> weights) {
  double sum = 0, all = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    sum += weights[i] * values[i];
    all += weights[i];
  }
  return sum / all;
}

/// As many values of one weight know a mean as well.
double effective(std::span<const double> weights) {
  double sum = 0, squares = 0;
  for (const double w : weights) {
    sum += w;
    squares += w * w;
  }
  return sum * sum / squares;
}

/// Wilson's interval of a mean `p` that varies like the share of `n` right or wrong samples.
Interval score_interval(double p, double n, double z = kNormal95) {
  const double scale = 1 + z * z / n, centre = p + z * z / (2 * n);
  const double half = z * std::sqrt(p * (1 - p) / n + z * z / (4 * n * n));
  // The ends are exactly 0 and 1 at no and all successes; rounding must not move them.
  return {p == 0 ? 0.0 : std::max(0.0, (centre - half) / scale), p == 1 ? 1.0 : std::min(1.0, (centre + half) / scale)};
}

/// share_interval() of `n` scores of this mean and variance.
Interval share_interval_of(double mean, double variance, double n, double z) {
  constexpr double kTowardsOne = kNormal95 * kNormal95;
  const double varies = n * variance, most = n * mean * (1 - mean);
  return score_interval(mean, n * (most + kTowardsOne) / (varies + kTowardsOne), z);
}

/// Correlation of pairs; a positive covariance gets Newcombe's continuity correction. All may be scaled alike.
double corrected_correlation(double covariance, double variances, double correction) {
  if (covariance > 0) covariance = std::max(covariance - correction, 0.0);
  return variances > 0 ? std::max(covariance / std::sqrt(variances), -1.0) : 0.0;
}

/// Newcombe's method 10: of the difference p1 - p2, from the intervals of both and the correlation of the pairs.
Interval joined(double p1, const Interval& first, double p2, const Interval& second, double correlation) {
  const auto reach = [correlation](double x, double y) {
    return std::sqrt(std::max(0.0, x * x - 2 * correlation * x * y + y * y));
  };
  return {p1 - p2 - reach(p1 - first.low, second.high - p2), p1 - p2 + reach(first.high - p1, p2 - second.low)};
}

}  // namespace

double normal_quantile(double p) {
  TANDEM_CHECK(p > 0 && p < 1, "p = {}", p);
  return normal_quantile_within(40, p);  // beyond, a double has no tail left
}

Interval wilson_interval(std::uint64_t successes, std::uint64_t n) {
  TANDEM_CHECK(n > 0 && successes <= n, "{} of {}", successes, n);
  const double count = static_cast<double>(n);
  return score_interval(static_cast<double>(successes) / count, count);
}

Interval share_interval(std::span<const double> scores, std::span<const double> weights, double z) {
  TANDEM_CHECK(!scores.empty(), "no scores");
  const std::vector<double> w = weights_of(weights, scores.size());
  const double m = weighted_mean(scores, w), n = effective(w);
  double squares = 0, all = 0;
  for (std::size_t i = 0; i < scores.size(); ++i) {
    squares += w[i] * w[i] * (scores[i] - m) * (scores[i] - m);
    all += w[i] * w[i];
  }
  return share_interval_of(m, squares / all, n, z);
}

double student_quantile95(std::uint64_t freedom) {
  TANDEM_CHECK(freedom > 0, "{} degrees of freedom", freedom);
  // Of so many that its series is long, Cornish and Fisher's expansion is exact to 1e-9.
  const double v = static_cast<double>(freedom), z = kNormal95;
  if (freedom > 1000) {
    const double z3 = z * z * z, z5 = z3 * z * z;
    return z + (z3 + z) / (4 * v) + (5 * z5 + 16 * z3 + 3 * z) / (96 * v * v);
  }
  // P(|T| < t), a finite series for whole degrees of freedom (Abramowitz and Stegun 26.7.3 and 26.7.4).
  const auto within = [&](double t) {
    const double angle = std::atan(t / std::sqrt(v)), c = std::cos(angle);
    const bool odd = freedom % 2 == 1;
    double term = odd ? c : 1, sum = 0;
    for (std::uint64_t k = odd ? 1 : 0; k + 2 <= freedom; k += 2) {
      sum += term;
      term *= c * c * static_cast<double>(k + 1) / static_cast<double>(k + 2);
    }
    const double part = std::sin(angle) * sum;
    return odd ? 2 / std::numbers::pi * (angle + part) : part;
  };
  return bisect(0, 13, within, 0.95);
}

Interval bootstrap_mean_interval(std::span<const double> values, std::uint32_t resamples) {
  TANDEM_CHECK(!values.empty() && resamples > 0, "{} values, {} resamples", values.size(), resamples);
  if (values.size() == 1) return {values[0], values[0]};
  Random random(20240404);
  std::vector<double> means(resamples);
  std::vector<std::uint32_t> drawn(values.size());
  for (double& m : means) {
    random.fill_below(values.size(), drawn);
    double sum = 0;
    for (const std::uint32_t i : drawn) sum += values[i];
    m = sum / static_cast<double>(values.size());
  }
  const double n = static_cast<double>(values.size());
  const double reach = std::sqrt(n / (n - 1)) * student_quantile95(values.size() - 1);
  const double tail = std::erfc(reach / std::numbers::sqrt2) / 2;
  return {percentile(means, tail), percentile(means, 1 - tail)};
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
  return joined(p1, first, p2, second,
                corrected_correlation(a * d - b * c, (a + b) * (c + d) * (a + c) * (b + d), count / 2));
}

Interval paired_share_interval(std::span<const double> first, std::span<const double> second,
                               std::span<const double> weights, double z) {
  TANDEM_CHECK(first.size() == second.size() && !first.empty(), "{} and {} scores", first.size(), second.size());
  const std::vector<double> w = weights_of(weights, first.size());
  const double p1 = weighted_mean(first, w), p2 = weighted_mean(second, w);
  double together = 0, squares1 = 0, squares2 = 0, all = 0;
  for (std::size_t i = 0; i < first.size(); ++i) {
    together += w[i] * (first[i] - p1) * (second[i] - p2);
    squares1 += w[i] * (first[i] - p1) * (first[i] - p1);
    squares2 += w[i] * (second[i] - p2) * (second[i] - p2);
    all += w[i];
  }
  const double correlation =
      corrected_correlation(together / all, squares1 / all * (squares2 / all), 1 / (2 * effective(w)));
  return joined(p2, share_interval(second, weights, z), p1, share_interval(first, weights, z), correlation);
}

Interval paired_share_interval(const PairedMoments& m, double n, double z) {
  return joined(m.mean2, share_interval_of(m.mean2, m.variance2, n, z), m.mean1,
                share_interval_of(m.mean1, m.variance1, n, z),
                corrected_correlation(m.covariance, m.variance1 * m.variance2, 1 / (2 * n)));
}

double mcnemar_mid_p(const PairedCounts& counts) {
  const std::uint64_t n = counts.first_only + counts.second_only;
  if (n == 0) return 1;
  const std::uint64_t more = std::max(counts.first_only, counts.second_only);
  return std::min(1.0, upper_tail(more, n, 0.5) + upper_tail(more + 1, n, 0.5));
}

double detectable_difference(std::uint64_t n, double discordant) {
  TANDEM_CHECK(n > 0 && discordant >= 0 && discordant <= 1, "{} pairs, {} discordant", n, discordant);
  const double pairs = static_cast<double>(n);
  // Where all that disagree favour one method, the difference is `differing`; below that, what the test needs.
  const auto needed = [&](double difference, double differing) {
    const double z =
        kNormal95 * std::sqrt(differing) + kNormal80 * std::sqrt(std::max(differing - difference * difference, 0.0));
    return z / std::sqrt(pairs);
  };
  const double differing = std::max(discordant, 1 / pairs);
  return bisect(
      0, 1, [&](double x) { return x - needed(x, std::max(differing, x)); }, 0);
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

std::optional<double> ratio(double part, double whole) {
  return whole > 0 ? std::optional(part / whole) : std::nullopt;
}

const char* to_string(IntervalKind kind) {
  constexpr std::array<const char*, 7> kNames = {"none",
                                                 "Wilson score",
                                                 "Wilson score with the spread of the shares",
                                                 "bootstrap",
                                                 "Newcombe paired score",
                                                 "Newcombe paired score with the spread of the shares",
                                                 "paired bootstrap"};
  return kNames.at(static_cast<std::size_t>(kind));
}

Estimate estimate_mean(std::span<const double> scores, std::span<const double> weights) {
  const std::vector<double> w = weights_of(weights, scores.size());
  Estimate estimate{scores.size(), weighted_mean(scores, w), {}, IntervalKind::shares};
  if (all_binary(scores) && all_alike(w)) {
    estimate.kind = IntervalKind::wilson;
    estimate.interval = wilson_interval(static_cast<std::uint64_t>(std::ranges::count(scores, 1.0)), scores.size());
  } else {
    estimate.interval = share_interval(scores, weights);
  }
  return estimate;
}

PairedEstimate compare_paired(std::span<const double> first, std::span<const double> second,
                              std::span<const double> weights) {
  TANDEM_CHECK(first.size() == second.size() && !first.empty(), "{} and {} scores", first.size(), second.size());
  const std::vector<double> w = weights_of(weights, first.size());
  PairedEstimate result;
  Estimate& difference = result.difference;
  difference.n = first.size();
  std::vector<double> differences(first.size());
  for (std::size_t i = 0; i < first.size(); ++i) differences[i] = second[i] - first[i];
  difference.value = weighted_mean(differences, w);
  result.has_p = all_binary(first) && all_binary(second) && all_alike(w);
  if (!result.has_p) {
    difference.kind = IntervalKind::paired_shares;
    difference.interval = paired_share_interval(first, second, weights);
    return result;
  }
  for (std::size_t i = 0; i < first.size(); ++i) {
    PairedCounts& counts = result.counts;
    ++(first[i] == 1 ? (second[i] == 1 ? counts.both : counts.first_only)
                     : (second[i] == 1 ? counts.second_only : counts.neither));
  }
  difference.kind = IntervalKind::newcombe;
  const Interval flipped = newcombe_paired_interval(result.counts);  // of first - second
  difference.interval = {-flipped.high, -flipped.low};
  result.p = mcnemar_mid_p(result.counts);
  const std::uint64_t disagree = result.counts.first_only + result.counts.second_only;
  result.detectable =
      detectable_difference(first.size(), static_cast<double>(disagree) / static_cast<double>(first.size()));
  return result;
}

}  // namespace tandem::eval
