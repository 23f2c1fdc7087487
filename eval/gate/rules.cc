#include "eval/gate/rules.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "engine/common/error.h"

namespace tandem::eval {
namespace {

constexpr std::size_t kFewestRatios = 5;  // a bootstrap of fewer is much too sure

bool significant_loss(const PairedScores& scores, const PairedEstimate& change, double alpha) {
  if (change.difference.value >= 0) return false;
  if (change.has_p) return change.p < alpha;
  return paired_share_interval(scores.first, scores.second, scores.weights, normal_quantile(1 - alpha / 2)).high < 0;
}

/// Pairs like these, but which disagree as often for the run as against it, and one of them at least.
PairedMoments fair_moments(const PairedScores& scores) {
  const bool alike = scores.first == scores.second;
  double all = 0, sum = 0, squares = 0, products = 0;
  for (std::size_t i = 0; i < scores.first.size(); ++i) {
    const bool disagrees = alike && i == 0;
    const double x = disagrees ? 1 : scores.first[i], y = disagrees ? 0 : scores.second[i], w = scores.weights[i];
    all += w;
    sum += w * (x + y) / 2;
    squares += w * (x * x + y * y) / 2;
    products += w * x * y;
  }
  const double mean = sum / all, variance = squares / all - mean * mean;
  return {mean, mean, variance, variance, products / all - mean * mean};
}

}  // namespace

const char* to_string(Verdict verdict) {
  constexpr std::array<const char*, 3> kNames = {"passed", "cannot tell", "failed"};
  return kNames.at(static_cast<std::size_t>(verdict));
}

AccuracyVerdict judge_accuracy(const PairedScores& scores, double margin, double alpha) {
  AccuracyVerdict out;
  out.before = estimate_mean(scores.first, scores.weights).value;
  out.after = estimate_mean(scores.second, scores.weights).value;
  out.change = compare_paired(scores.first, scores.second, scores.weights);
  out.change.difference.n = scores.samples;
  if (significant_loss(scores, out.change, alpha)) {
    out.verdict = Verdict::failed;
  } else if (out.change.difference.interval.low < -margin) {
    out.verdict = Verdict::cannot_tell;
    if (margin > 0) out.needed = samples_needed(scores, margin);
  }
  return out;
}

std::uint64_t samples_needed(const PairedScores& scores, double margin) {
  TANDEM_CHECK(!scores.first.empty() && margin > 0, "{} pairs, margin {}", scores.first.size(), margin);
  const PairedMoments fair = fair_moments(scores);
  // What one run in five is below 0 by, and the interval below that, which is about as wide as at 0.
  const auto reaches = [&](double n) {
    const double spread = std::sqrt(2 * (fair.variance1 - fair.covariance) / n);
    return kNormal80 * spread - paired_share_interval(fair, n).low;
  };
  double low = 1, high = kMostNeeded;
  if (reaches(high) > margin) return kMostNeeded;
  while (high - low > 0.5) {
    const double middle = (low + high) / 2;
    (reaches(middle) > margin ? low : high) = middle;
  }
  double all = 0, squares = 0;
  for (const double w : scores.weights) {
    all += w;
    squares += w * w;
  }
  // As many as these know as much as all^2 / squares of one weight do (Kish 1965).
  return static_cast<std::uint64_t>(std::ceil(high * static_cast<double>(scores.samples) * squares / (all * all)));
}

TimeVerdict judge_exact(double before_ms, double after_ms, double margin) {
  TimeVerdict out;
  out.before_ms = before_ms;
  out.after_ms = after_ms;
  if (const std::optional<double> times = ratio(after_ms, before_ms)) out.change = *times - 1;
  out.margin = margin;
  if (after_ms > before_ms * (1 + margin)) out.verdict = Verdict::failed;
  return out;
}

TimeVerdict judge_measured(std::span<const double> log_ratios, double margin) {
  TimeVerdict out;
  out.change = std::expm1(mean(log_ratios));
  out.margin = margin;
  out.verdict = Verdict::cannot_tell;
  if (log_ratios.size() < kFewestRatios) return out;
  const Interval logs = bootstrap_mean_interval(log_ratios);
  out.interval = Interval{std::expm1(logs.low), std::expm1(logs.high)};
  if (out.interval->high <= margin) out.verdict = Verdict::passed;
  if (out.interval->low > margin) out.verdict = Verdict::failed;
  return out;
}

}  // namespace tandem::eval
