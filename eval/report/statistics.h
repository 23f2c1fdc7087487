// Intervals and tests for scores and times. All deterministic; the bootstrap has a fixed seed.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace tandem::eval {

struct Interval {
  double low = 0, high = 0;
  bool operator==(const Interval&) const = default;
};

inline constexpr double kNormal95 = 1.959963984540054;   // standard normal quantile at 0.975
inline constexpr double kNormal80 = 0.8416212335729143;  // at 0.8

/// The x below which a standard normal variable lies with probability p, 0 < p < 1.
double normal_quantile(double p);

/// 95 % score interval of a proportion (Wilson 1927). It stays inside [0, 1] and has a width at 0 and n successes,
/// where the bootstrap and the normal interval have none. Needs n > 0 and successes <= n.
Interval wilson_interval(std::uint64_t successes, std::uint64_t n);

/// 95 % interval of the mean of independent scores in [0, 1], shares among them, of weight 1 or of these `weights`
/// (above 0). Wilson's with as many samples as would vary like these: n / D, where D is the variance of the scores over
/// m (1 - m), the most that a mean m allows. Scores of 0 and 1 have D = 1, and the interval is Wilson's. A few samples
/// near 0 or 1 may all miss a rare bad score, which makes the bootstrap too sure. So D is drawn towards 1 as by z^2
/// right or wrong samples; tests/eval/report/coverage_test.cc has how often that covers. With weights, n is
/// (sum w)^2 / sum w^2 (Kish 1965). Needs a score. `z`: another level than 95 %, by its normal quantile.
Interval share_interval(std::span<const double> scores, std::span<const double> weights = {}, double z = kNormal95);

/// Student's t at 0.975 for so many degrees of freedom, at least one.
double student_quantile95(std::uint64_t freedom);

/// 95 % bootstrap interval of the mean, `resamples` resamples: expanded percentiles (Hesterberg 2015, The American
/// Statistician 69:371), by which it is as wide as Student's for few values, yet as skewed as they are. Needs a value.
Interval bootstrap_mean_interval(std::span<const double> values, std::uint32_t resamples = 2000);

/// The same samples under two methods: how often both, only the first, only the second, none was right.
struct PairedCounts {
  std::uint64_t both = 0, first_only = 0, second_only = 0, neither = 0;
  std::uint64_t total() const { return both + first_only + second_only + neither; }
};

/// 95 % interval of P(first right) - P(second right) from paired samples: Newcombe 1998 (Statistics in Medicine
/// 17:2635), method 10, which joins the two Wilson intervals with the correlation of the pairs. Unlike the paired
/// bootstrap's it has a width where the methods agree on every sample.
Interval newcombe_paired_interval(const PairedCounts& counts);

/// The same for scores in [0, 1] and weights as in share_interval(): 95 % interval of mean(second) - mean(first), from
/// the two intervals of share_interval() and the correlation of the scores, joined and corrected as Newcombe's. Scores
/// of 0 and 1 have Newcombe's. The bootstrap of the differences is too sure where the methods seldom differ.
Interval paired_share_interval(std::span<const double> first, std::span<const double> second,
                               std::span<const double> weights = {}, double z = kNormal95);

/// The same of pairs of one weight that are known by their moments only: how wide it would be of `n` such pairs.
struct PairedMoments {
  double mean1 = 0, mean2 = 0, variance1 = 0, variance2 = 0, covariance = 0;  // over n, not n - 1
};
Interval paired_share_interval(const PairedMoments& moments, double n, double z = kNormal95);

/// Two-sided McNemar test, mid-p: the binomial's tail with half of the observed outcome's probability (Fagerland,
/// Lydersen, Laake 2013, BMC Medical Research Methodology 13:91). 1 when the methods never disagree.
double mcnemar_mid_p(const PairedCounts& counts);

/// The smallest true difference of two methods' shares, in [0, 1], that a McNemar test at 5 % finds in four of five
/// runs with this many pairs, where `discordant` is the share of pairs on which the methods disagree: the normal
/// approximation n d^2 = (z_0.975 sqrt(discordant) + z_0.8 sqrt(discordant - d^2))^2. A difference above `discordant`
/// takes a larger share that disagrees: then as large a one as it needs. Needs n > 0; no disagreement counts as one
/// pair.
double detectable_difference(std::uint64_t n, double discordant);

/// p in [0, 1]; linear between order statistics (type 7 of Hyndman and Fan 1996, NumPy's default). Needs a value.
double percentile(std::span<const double> values, double p);

/// Needs a value.
double mean(std::span<const double> values);

/// part / whole, where `whole` is above 0.
std::optional<double> ratio(double part, double whole);

/// All 95 %. `shares` and `paired_shares`: share_interval() and paired_share_interval(). The bootstraps are of what has
/// no largest value, such as losses.
enum class IntervalKind : std::uint8_t { none, wilson, shares, bootstrap, newcombe, paired_shares, paired_bootstrap };
const char* to_string(IntervalKind kind);  // "Wilson score", ...

struct Estimate {
  std::uint64_t n = 0;
  double value = 0;
  Interval interval;
  IntervalKind kind = IntervalKind::wilson;
};

/// Mean of scores in [0, 1] with its 95 % interval: Wilson where all are 0 or 1, else share_interval(). `weights`,
/// where there are any, are above 0. Needs a value.
Estimate estimate_mean(std::span<const double> scores, std::span<const double> weights = {});

struct PairedEstimate {
  Estimate difference;    // mean(second) - mean(first): negative when the second is worse
  double p = 1;           // McNemar, mid-p; only where `has_p`
  double detectable = 0;  // detectable_difference() for as many pairs that disagree as often; only where `has_p`
  bool has_p = false;     // all scores are 0 or 1, and all weights alike
  PairedCounts counts;    // only where `has_p`
};

/// Same samples in the same order. Newcombe and McNemar where all scores are 0 or 1 and all weights alike, else
/// paired_share_interval() and no p. `weights` as in estimate_mean().
PairedEstimate compare_paired(std::span<const double> first, std::span<const double> second,
                              std::span<const double> weights = {});

}  // namespace tandem::eval
