#include "eval/report/statistics.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <random>
#include <vector>

namespace tandem::eval {
namespace {

double binomial_product(std::uint64_t n, std::uint64_t k, double p) {  // product form, no logarithms of factorials
  double value = 1;
  for (std::uint64_t i = 1; i <= k; ++i) value *= static_cast<double>(n - k + i) / static_cast<double>(i);
  return value * std::pow(p, static_cast<double>(k)) * std::pow(1 - p, static_cast<double>(n - k));
}

TEST(Statistics, ProportionsAgainstScipyAndNewcombe) {
  // scipy 1.17.1, binomtest(k, n).proportion_ci("wilson"). The first four are also the examples of Newcombe 1998
  // (Statistics in Medicine 17:857), table I: 0.2553-0.3662, 0.0624-0.1605, 0-0.1611, 0.0061-0.1718.
  struct Case {
    std::uint64_t k, n;
    double low, high;
  };
  for (const Case& c :
       {Case{81, 263, 0.2552885198782742, 0.36620957698280004}, Case{15, 148, 0.06238639953073629, 0.16048724172330803},
        Case{0, 20, 0.0, 0.16112515805281935}, Case{1, 29, 0.006113214292762667, 0.17175521879320282},
        Case{29, 29, 0.8830302015002592, 1.0}, Case{7, 10, 0.39677814746114526, 0.892208732593699}}) {
    EXPECT_NEAR(wilson_interval(c.k, c.n).low, c.low, 1e-13);
    EXPECT_NEAR(wilson_interval(c.k, c.n).high, c.high, 1e-13);
  }
}

TEST(Statistics, WilsonSolvesItsDefinition) {
  // The limits are the p at which the observed share is z standard errors away.
  for (std::uint64_t n : {1u, 5u, 50u, 1000u}) {
    for (std::uint64_t k = 0; k <= n; k += std::max<std::uint64_t>(1, n / 7)) {
      const Interval interval = wilson_interval(k, n);
      const double share = static_cast<double>(k) / static_cast<double>(n);
      ASSERT_LE(interval.low, share);
      ASSERT_GE(interval.high, share);
      for (const double p : {interval.low, interval.high}) {
        if (p <= 1e-12 || p >= 1 - 1e-12) continue;
        EXPECT_NEAR(std::abs(share - p) / std::sqrt(p * (1 - p) / static_cast<double>(n)), kNormal95, 1e-7);
      }
    }
  }
}

TEST(Statistics, WilsonCoversAbout95Percent) {
  const std::uint64_t n = 40;
  double sum = 0;
  int steps = 0;
  for (double p = 0.025; p < 1; p += 0.025, ++steps) {
    double wilson = 0;
    for (std::uint64_t k = 0; k <= n; ++k) {
      const Interval w = wilson_interval(k, n);
      if (w.low <= p && p <= w.high) wilson += binomial_product(n, k, p);
    }
    EXPECT_GE(wilson, 0.90) << p;
    sum += wilson;
  }
  EXPECT_NEAR(sum / steps, 0.95, 0.01);
}

TEST(Statistics, NewcombePairedAgainstAnotherProgram) {
  // A Python program written from the paper's formulas with SciPy's normal quantile (scipy 1.17.1).
  struct Case {
    PairedCounts counts;
    double low, high;
  };
  for (const Case& c : {Case{{20, 12, 2, 16}, 0.05615642484174832, 0.3292069954001405},
                        Case{{36, 12, 2, 0}, 0.05692958400323875, 0.3404276029749408},
                        Case{{1, 1, 7, 12}, -0.506920226686141, -0.025559124164859837},
                        Case{{50, 0, 0, 0}, -0.07134759913335875, 0.07134759913335875},
                        Case{{53, 0, 1, 0}, -0.09771437488781931, 0.049621661889404076},
                        Case{{0, 29, 1, 0}, 0.6665921801718167, 0.9881828192367751}}) {
    EXPECT_NEAR(newcombe_paired_interval(c.counts).low, c.low, 1e-12);
    EXPECT_NEAR(newcombe_paired_interval(c.counts).high, c.high, 1e-12);
  }
}

TEST(Statistics, NewcombePairedCoversAbout95Percent) {
  // Exact coverage: all tables of 20 pairs with their multinomial probabilities.
  struct Cell {
    double both, first, second, neither;
  };
  for (const Cell& truth : {Cell{0.9, 0.05, 0.02, 0.03}, Cell{0.5, 0.3, 0.1, 0.1}, Cell{0.25, 0.25, 0.25, 0.25}}) {
    const int n = 20;
    double covered = 0, total = 0;
    for (int a = 0; a <= n; ++a) {
      for (int b = 0; a + b <= n; ++b) {
        for (int c = 0; a + b + c <= n; ++c) {
          const int d = n - a - b - c;
          const double probability = std::exp(std::lgamma(n + 1.0) - std::lgamma(a + 1.0) - std::lgamma(b + 1.0) -
                                              std::lgamma(c + 1.0) - std::lgamma(d + 1.0)) *
                                     std::pow(truth.both, a) * std::pow(truth.first, b) * std::pow(truth.second, c) *
                                     std::pow(truth.neither, d);
          const Interval interval =
              newcombe_paired_interval({static_cast<std::uint64_t>(a), static_cast<std::uint64_t>(b),
                                        static_cast<std::uint64_t>(c), static_cast<std::uint64_t>(d)});
          total += probability;
          if (interval.low <= truth.first - truth.second && truth.first - truth.second <= interval.high)
            covered += probability;
        }
      }
    }
    EXPECT_NEAR(total, 1, 1e-9);
    EXPECT_GT(covered, 0.93) << truth.both;
    // Where methods hardly disagree no interval for 20 pairs can be short; elsewhere it must not be wider than needed.
    if (truth.both < 0.9) {
      EXPECT_LT(covered, 0.975) << truth.both;
    }
  }
}

TEST(Statistics, McnemarMidPAgainstTheDefinition) {
  // The exact test's p (scipy 1.17.1, binomtest(min(b, c), b + c, 0.5).pvalue) less the observed outcome's probability.
  struct Case {
    PairedCounts counts;
    double exact;
  };
  for (const Case& c : {Case{{9, 12, 2, 4}, 0.012939453125}, Case{{3, 0, 7, 3}, 0.015625},
                        Case{{5, 30, 14, 5}, 0.022628841205914796}}) {
    const std::uint64_t n = c.counts.first_only + c.counts.second_only;
    EXPECT_NEAR(mcnemar_mid_p(c.counts), c.exact - binomial_product(n, c.counts.first_only, 0.5), 1e-12);
  }
  EXPECT_EQ(mcnemar_mid_p({5, 0, 0, 5}), 1);
  EXPECT_NEAR(mcnemar_mid_p({0, 5, 5, 0}), 1, 1e-12);
  EXPECT_NEAR(mcnemar_mid_p({0, 1, 0, 0}), 0.5, 1e-12);
}

TEST(Statistics, PercentilesAgainstNumpy) {
  const std::vector<double> x = {3.5, 1.25, 9, 4, 4, -2, 7.75};  // numpy.percentile(x, 100 p), default method
  const double p[] = {0, 0.01, 0.25, 0.5, 0.9, 0.99, 1}, expected[] = {-2, -1.805, 2.375, 4, 8.25, 8.925, 9};
  for (int i = 0; i < 7; ++i) EXPECT_NEAR(percentile(x, p[i]), expected[i], 1e-12);
  EXPECT_EQ(percentile(std::vector<double>{5}, 0.99), 5);
}

TEST(Statistics, BootstrapFindsTheNormalInterval) {
  std::mt19937_64 random(5);
  std::normal_distribution<double> normal(3, 2);
  std::vector<double> x(400);
  for (double& value : x) value = normal(random);
  double sum = 0, squares = 0;
  for (const double value : x) sum += value;
  const double centre = sum / 400;
  for (const double value : x) squares += (value - centre) * (value - centre);
  const double half = kNormal95 * std::sqrt(squares / 400 / 400);
  const Interval interval = bootstrap_mean_interval(x);
  EXPECT_NEAR(interval.low, centre - half, 0.1 * half);
  EXPECT_NEAR(interval.high, centre + half, 0.1 * half);
  EXPECT_EQ(bootstrap_mean_interval(x), interval);
}

TEST(Statistics, StudentAgainstTables) {
  // Abramowitz and Stegun, table 26.10; 1,000 and 1,001 from both ways that it is computed.
  const std::pair<std::uint64_t, double> table[] = {{1, 12.706}, {2, 4.303},  {3, 3.182},  {4, 2.776},  {9, 2.262},
                                                    {10, 2.228}, {30, 2.042}, {60, 2.000}, {120, 1.980}};
  for (const auto& [freedom, t] : table) EXPECT_NEAR(student_quantile95(freedom), t, 5e-4) << freedom;
  EXPECT_NEAR(student_quantile95(1000), student_quantile95(1001), 3e-6);
  EXPECT_NEAR(student_quantile95(100000000), kNormal95, 1e-6);
}

TEST(Statistics, BootstrapCoversTheMeanOfFewValues) {
  std::mt19937_64 random(11);
  std::normal_distribution<double> normal(1, 1);
  for (const std::size_t n : {8u, 24u}) {
    int covered = 0;
    constexpr int kTrials = 1500;
    for (int trial = 0; trial < kTrials; ++trial) {
      std::vector<double> x(n);
      for (double& value : x) value = normal(random);
      const Interval interval = bootstrap_mean_interval(x, 1000);
      covered += interval.low <= 1 && 1 <= interval.high;
    }
    EXPECT_GE(covered, 0.935 * kTrials) << n;  // plain percentiles: 90 and 92 %
    EXPECT_LE(covered, 0.975 * kTrials) << n;
  }
}

TEST(Statistics, BootstrapOfThreeValuesIsTheExactDistribution) {
  // 27 equally likely resamples of {0, 0.5, 1}; their means are k/6 with 1, 3, 6, 7, 6, 3, 1 of 27. Both ends, at tails
  // of 7e-8, lie in the first and the last of them.
  const Interval interval = bootstrap_mean_interval(std::vector<double>{0, 0.5, 1}, 20000);
  EXPECT_NEAR(interval.low, 0, 1e-12);
  EXPECT_NEAR(interval.high, 1, 1e-12);
}

TEST(Statistics, SharesAgainstAnotherProgram) {
  // A Python program with NumPy, written from the description in statistics.h.
  const auto expect = [](const std::vector<double>& scores, const std::vector<double>& weights, double low,
                         double high) {
    const Interval interval = share_interval(scores, weights);
    EXPECT_NEAR(interval.low, low, 1e-12);
    EXPECT_NEAR(interval.high, high, 1e-12);
  };
  std::vector<double> one_less(20, 1.0), half(60, 0.5);
  one_less[7] = 0.75;
  half[0] = half[1] = 1;
  half[2] = 0;
  expect(one_less, {}, 0.8247453793492475, 0.9992465249465465);
  expect(half, {}, 0.4462623564406388, 0.5701484441975928);
  expect({0, 1.0 / 3, 1, 2.0 / 3, 1}, {3, 3, 1, 3, 1}, 0.1415087666552033, 0.8081713666734333);
}

TEST(Statistics, SharesOfRightAndWrongAreWilsons) {
  for (const std::uint64_t n : {1u, 7u, 60u}) {
    for (std::uint64_t k = 0; k <= n; ++k) {
      std::vector<double> scores(n, 0.0);
      std::fill_n(scores.begin(), k, 1.0);
      const Interval shares = share_interval(scores), wilson = wilson_interval(k, n);
      EXPECT_NEAR(shares.low, wilson.low, 1e-14);
      EXPECT_NEAR(shares.high, wilson.high, 1e-14);
      EXPECT_EQ(estimate_mean(scores).interval, wilson);
    }
  }
}

TEST(Statistics, AScoreThatIsAlmostRightChangesTheIntervalAlittle) {
  // The bootstrap jumped from [83.9, 100] to [96.3, 100].
  const std::vector<double> right(20, 1.0);
  double before = estimate_mean(right).interval.low;
  for (const double last : {0.9999, 0.99, 0.95, 0.9, 0.8, 0.75, 0.6, 0.5, 0.3, 0.1, 0.0}) {
    std::vector<double> scores = right;
    scores.back() = last;
    const double low = estimate_mean(scores).interval.low;
    EXPECT_LT(low, before) << last << ": a worse score gives a lower end";
    EXPECT_GT(low, before - 0.04) << last;
    before = low;
  }
}

TEST(Statistics, WhatIsAllAlikeIsNotCertain) {
  // None of n differs: Wilson's upper bound for that is z^2 / (n + z^2).
  const double z2 = kNormal95 * kNormal95;
  for (const std::size_t n : {1, 2, 20}) {
    const double others = z2 / (double(n) + z2);
    const Estimate third = estimate_mean(std::vector<double>(n, 0.3));
    EXPECT_EQ(third.kind, IntervalKind::shares);
    EXPECT_LT(third.interval.low, 0.3 - 0.3 * others + 0.05);
    EXPECT_GT(third.interval.high, 0.3 + 0.5 * others - 0.05);
    std::vector<double> scores(n, 1.0);
    const Estimate none = compare_paired(std::vector<double>(n, 0.5), std::vector<double>(n, 0.5)).difference;
    EXPECT_EQ(none.kind, IntervalKind::paired_shares);
    EXPECT_EQ(none.value, 0);
    EXPECT_LT(none.interval.low, -0.4 * others);
    EXPECT_GT(none.interval.high, 0.4 * others);
    // All a quarter better: others may be worse, or better by all.
    const Estimate quarter = compare_paired(std::vector<double>(n, 0.5), std::vector<double>(n, 0.75)).difference;
    EXPECT_LT(quarter.interval.low, 0.25 - 0.4 * others);
    EXPECT_GT(quarter.interval.high, 0.25 + 0.4 * others);
    // One sample of many that is a little worse makes nothing certain.
    if (n < 20) continue;
    scores[0] = 0.75;
    const Estimate tiny = compare_paired(std::vector<double>(n, 1.0), scores).difference;
    EXPECT_LT(tiny.interval.low, -0.9 * others);
    EXPECT_GT(tiny.interval.high, 0.9 * others);
  }
}

TEST(Statistics, WeightsCountAsSamples) {
  const std::vector<double> first = {1, 0, 0.5, 1}, second = {0, 0, 1, 1}, weights = {3, 3, 1, 1};
  const Estimate mean = estimate_mean(first, weights);
  EXPECT_NEAR(mean.value, (3 + 0.5 + 1) / 8, 1e-15);
  EXPECT_EQ(mean.kind, IntervalKind::shares);
  EXPECT_NEAR(compare_paired(first, second, weights).difference.value, (-3 + 0.5) / 8, 1e-15);
  // Right and wrong questions of different weights are no binomial_product; of one weight they are.
  const std::vector<double> a = {1, 0, 1, 1}, b = {0, 0, 1, 1}, threes(4, 3.0);
  EXPECT_FALSE(compare_paired(a, b, weights).has_p);
  EXPECT_EQ(estimate_mean(a, weights).kind, IntervalKind::shares);
  EXPECT_TRUE(compare_paired(a, b, threes).has_p);
  EXPECT_EQ(estimate_mean(a, threes).interval, wilson_interval(3, 4));
}

TEST(Statistics, EstimateChoosesItsInterval) {
  EXPECT_EQ(estimate_mean(std::vector<double>{1, 0, 1}).kind, IntervalKind::wilson);
  EXPECT_EQ(estimate_mean(std::vector<double>{1, 0.5, 1}).kind, IntervalKind::shares);
  const Estimate perfect = estimate_mean(std::vector<double>(20, 1.0));
  EXPECT_EQ(perfect.value, 1);
  EXPECT_LT(perfect.interval.low, 0.9);  // 20 of 20 does not prove 100 %
}

TEST(Statistics, PairedComparisonIsSecondMinusFirst) {
  std::vector<double> first, second;
  const auto add = [&](int n, double a, double b) {
    for (int i = 0; i < n; ++i) {
      first.push_back(a);
      second.push_back(b);
    }
  };
  add(20, 1, 1);
  add(12, 1, 0);
  add(2, 0, 1);
  add(16, 0, 0);
  const PairedEstimate worse = compare_paired(first, second);
  EXPECT_NEAR(worse.difference.value, -0.2, 1e-12);
  EXPECT_NEAR(worse.difference.interval.low, -0.3292069954001405, 1e-12);
  EXPECT_NEAR(worse.difference.interval.high, -0.05615642484174832, 1e-12);
  EXPECT_TRUE(worse.has_p);
  EXPECT_NEAR(worse.p, 0.012939453125 - binomial_product(14, 12, 0.5), 1e-12);
  EXPECT_EQ(worse.counts.first_only, 12u);
  EXPECT_EQ(worse.difference.n, 50u);
  const PairedEstimate same = compare_paired(first, first);
  EXPECT_EQ(same.difference.value, 0);
  EXPECT_LT(same.difference.interval.low, 0);  // agreement on 50 samples leaves room
  EXPECT_GT(same.difference.interval.high, 0);
  first[0] = 0.5;
  const PairedEstimate shares = compare_paired(first, second);
  EXPECT_FALSE(shares.has_p);
  EXPECT_EQ(shares.difference.kind, IntervalKind::paired_shares);
  EXPECT_NEAR(shares.difference.interval.low, worse.difference.interval.low, 0.02) << "one of 50 pairs is another";
  EXPECT_NEAR(shares.difference.interval.high, worse.difference.interval.high, 0.02);
  // Of scores of 0 and 1 it is Newcombe's interval.
  first[0] = 1;
  const Interval joined = paired_share_interval(first, second);
  EXPECT_NEAR(joined.low, worse.difference.interval.low, 1e-12);
  EXPECT_NEAR(joined.high, worse.difference.interval.high, 1e-12);
  const std::vector<double> threes(first.size(), 3.0);
  EXPECT_NEAR(paired_share_interval(first, second, threes).low, joined.low, 1e-12);
}

TEST(Statistics, NormalQuantilesAgainstScipy) {
  EXPECT_NEAR(normal_quantile(0.975), kNormal95, 1e-14);
  EXPECT_NEAR(normal_quantile(0.5), 0, 1e-14);
  EXPECT_NEAR(normal_quantile(0.01), -2.3263478740408408, 1e-13);
  EXPECT_NEAR(normal_quantile(1e-9), -5.997807015007687, 1e-9);
}

TEST(Statistics, SharesHaveIntervalsOfOtherLevels) {
  const std::vector<double> first = {1, 0.5, 1, 1, 0.25, 1, 0, 1}, second = {1, 0.5, 0.5, 1, 0.25, 0.75, 0, 0};
  const Interval at95 = paired_share_interval(first, second), at90 = paired_share_interval(first, second, {}, 1.6449);
  EXPECT_EQ(paired_share_interval(first, second, {}, kNormal95), at95);
  EXPECT_GT(at90.low, at95.low);
  EXPECT_LT(at90.high, at95.high);
  EXPECT_LT(share_interval(first, {}, 1.6449).high, share_interval(first).high);
  std::vector<double> right(200, 0);
  std::fill(right.begin(), right.begin() + 120, 1);
  EXPECT_NEAR(share_interval(right, {}, normal_quantile(0.95)).low, 0.5420516811, 1e-9) << "Wilson's at 90 %";
}

TEST(Statistics, PairsKnownByTheirMomentsHaveTheSameInterval) {
  const std::vector<double> first = {1, 0.5, 1, 1, 0.25, 1, 0, 1}, second = {1, 0.5, 0.5, 1, 0.25, 0.75, 0, 0};
  PairedMoments m{mean(first), mean(second)};
  for (std::size_t i = 0; i < first.size(); ++i) {
    m.variance1 += (first[i] - m.mean1) * (first[i] - m.mean1) / 8;
    m.variance2 += (second[i] - m.mean2) * (second[i] - m.mean2) / 8;
    m.covariance += (first[i] - m.mean1) * (second[i] - m.mean2) / 8;
  }
  const Interval seen = paired_share_interval(first, second), known = paired_share_interval(m, 8);
  EXPECT_NEAR(known.low, seen.low, 1e-12);
  EXPECT_NEAR(known.high, seen.high, 1e-12);
  EXPECT_GT(paired_share_interval(m, 80).low, seen.low);
}

}  // namespace
}  // namespace tandem::eval
