#include <cmath>
#include <gtest/gtest.h>
#include <vector>

#include "eval/gate/gate.h"
#include "eval/ruler_tasks/random.h"

namespace tandem::eval {
namespace {

constexpr double kMargin = 0.03, kAlpha = 0.05;

/// `right` samples of `n` are right in both runs, `lost` in the first only, `gained` in the second only.
PairedScores pairs(std::size_t n, std::size_t right, std::size_t lost, std::size_t gained = 0) {
  PairedScores scores;
  scores.samples = n;
  for (std::size_t i = 0; i < n; ++i) {
    const bool both = i < right, first = i >= right && i < right + lost;
    const bool second = i >= right + lost && i < right + lost + gained;
    scores.first.push_back(both || first ? 1 : 0);
    scores.second.push_back(both || second ? 1 : 0);
    scores.weights.push_back(1);
  }
  return scores;
}

/// Of two runs as good as one another: a score of one of `answers` equal parts, another one of `differing` pairs.
PairedScores drawn(Random& random, std::size_t n, double right, double differing, std::uint64_t answers = 1) {
  PairedScores scores;
  scores.samples = n;
  const auto chance = [&](double p) { return double(random.below(1u << 20)) < p * (1u << 20); };
  for (std::size_t i = 0; i < n; ++i) {
    double first = 0, second = 0;
    if (chance(differing)) {
      first = double(random.below(answers + 1)) / double(answers);
      second = answers == 1 ? 1 - first : double(random.below(answers + 1)) / double(answers);
    } else {
      first = second = chance(right) ? 1 : 0;
    }
    scores.first.push_back(first);
    scores.second.push_back(second);
    scores.weights.push_back(1);
  }
  return scores;
}

TEST(GateRules, AccuracyOfRunsWhoseVerdictIsKnown) {
  const auto verdict = [](const PairedScores& scores, double alpha = kAlpha) {
    return judge_accuracy(scores, kMargin, alpha).verdict;
  };
  EXPECT_EQ(verdict(pairs(240, 200, 0)), Verdict::passed);
  EXPECT_EQ(verdict(pairs(240, 200, 2)), Verdict::passed);
  EXPECT_EQ(verdict(pairs(240, 200, 4)), Verdict::cannot_tell) << "p is 0.06, the interval ends at -3.7";
  EXPECT_EQ(verdict(pairs(240, 200, 6)), Verdict::failed) << "p is 0.016";
  EXPECT_EQ(verdict(pairs(240, 200, 6), kAlpha / 14), Verdict::cannot_tell) << "one of 14 methods may do that";
  EXPECT_EQ(verdict(pairs(240, 100, 100)), Verdict::failed);
  EXPECT_EQ(verdict(pairs(240, 100, 0, 100)), Verdict::passed) << "a gain";
  EXPECT_EQ(verdict(pairs(4000, 3200, 50, 10)), Verdict::failed) << "1 point, within the margin, but significant";
  EXPECT_EQ(verdict(pairs(20, 16, 0)), Verdict::cannot_tell);
  EXPECT_EQ(judge_accuracy(pairs(240, 200, 2), 0.025, kAlpha).verdict, Verdict::cannot_tell) << "it ends at -2.6";
}

TEST(GateRules, SharesFailByTheirIntervalAndPassByIt) {
  PairedScores scores = pairs(240, 200, 0);
  for (std::size_t i = 0; i < 40; ++i) scores.first[i] = scores.second[i] = 0.75;
  EXPECT_EQ(judge_accuracy(scores, kMargin, kAlpha).verdict, Verdict::passed);
  for (std::size_t i = 0; i < 40; ++i) scores.second[i] = 0.25;
  const AccuracyVerdict lost = judge_accuracy(scores, kMargin, kAlpha);
  EXPECT_FALSE(lost.change.has_p);
  EXPECT_EQ(lost.verdict, Verdict::failed);
  EXPECT_EQ(judge_accuracy(scores, kMargin, 1e-9).verdict, Verdict::cannot_tell) << "at that level 8 points are few";
}

TEST(GateRules, RunsAsGoodAsTheBaselineFailAtMostAsOftenAsAlphaSays) {
  for (const std::uint64_t answers : {1u, 4u}) {
    for (const double alpha : {0.05, 0.3}) {
      Random random(7);
      constexpr int kRuns = 1000;
      int failed = 0;
      for (int i = 0; i < kRuns; ++i)
        failed += judge_accuracy(drawn(random, 120, 0.8, 0.15, answers), 1, alpha).verdict == Verdict::failed ? 1 : 0;
      EXPECT_LE(failed, alpha * kRuns) << alpha;
      if (answers == 1) {
        EXPECT_GE(failed, 0.3 * alpha * kRuns) << "a rule that never fails finds nothing";
      }
    }
  }
}

TEST(GateRules, TheSamplesNeededAreEnoughInFourOfFiveRuns) {
  struct Case {
    double right, differing, margin;
    std::uint64_t answers;
  };
  for (const Case& c : {Case{0.8, 0.05, 0.03, 1}, Case{0.5, 0.2, 0.05, 1}, Case{0.9, 0.1, 0.03, 4}}) {
    Random random(11);
    const std::uint64_t needed = samples_needed(drawn(random, 2000, c.right, c.differing, c.answers), c.margin);
    constexpr int kRuns = 300;
    int passed = 0;
    for (int i = 0; i < kRuns; ++i) {
      const PairedScores scores = drawn(random, needed, c.right, c.differing, c.answers);
      passed += compare_paired(scores.first, scores.second).difference.interval.low >= -c.margin ? 1 : 0;
    }
    EXPECT_NEAR(passed / double(kRuns), 0.8, 0.07) << needed << " samples, " << c.differing;
  }
}

TEST(GateRules, SamplesNeededGrowWithWhatDiffersAndHaveAnEnd) {
  const std::uint64_t alike = samples_needed(pairs(60, 50, 0), kMargin);
  EXPECT_GT(alike, 150u) << "100 suffice only if no pair can disagree";
  EXPECT_LT(alike, 400u);
  EXPECT_GT(samples_needed(pairs(60, 40, 5, 5), kMargin), alike);
  EXPECT_EQ(samples_needed(pairs(60, 40, 5, 5), 1e-6), kMostNeeded);
  EXPECT_EQ(judge_accuracy(pairs(60, 40, 0), 0, kAlpha).needed, 0u) << "no number of samples shows a margin of 0";
  PairedScores questions = pairs(60, 40, 5, 5);
  questions.samples = 180;  // each at three lengths
  EXPECT_NEAR(double(samples_needed(questions, kMargin)), 3.0 * double(samples_needed(pairs(60, 40, 5, 5), kMargin)),
              3);
}

TEST(GateRules, VirtualTimeIsExact) {
  EXPECT_EQ(judge_exact(1.0, 1.0, 0).verdict, Verdict::passed);
  EXPECT_EQ(judge_exact(1.0, 0.5, 0).verdict, Verdict::passed);
  EXPECT_EQ(judge_exact(1.0, 1.001, 0).verdict, Verdict::failed);
  EXPECT_EQ(judge_exact(1.0, 1.001, 0.01).verdict, Verdict::passed);
  const TimeVerdict slow = judge_exact(2.0, 2.03, 0.01);
  EXPECT_EQ(slow.verdict, Verdict::failed);
  EXPECT_NEAR(slow.change.value(), 0.015, 1e-12);
  EXPECT_FALSE(slow.interval);
  EXPECT_FALSE(judge_exact(0, 1, 0.01).change) << "a share of nothing";
}

/// Ratios of a machine that varies by +-3 %.
std::vector<double> noisy(double ratio, std::size_t n, double spread = 0.03) {
  Random random(5);
  std::vector<double> logs;
  for (std::size_t i = 0; i < n; ++i)
    logs.push_back(std::log(ratio) + spread * (double(random.below(2001)) / 1000 - 1));
  return logs;
}

TEST(GateRules, MeasuredTimeFailsOnlyWhereItsIntervalDoes) {
  EXPECT_EQ(judge_measured(noisy(1, 40), 0.05).verdict, Verdict::passed);
  EXPECT_EQ(judge_measured(noisy(0.5, 40), 0.05).verdict, Verdict::passed);
  const TimeVerdict slow = judge_measured(noisy(1.1, 40), 0.05);
  EXPECT_EQ(slow.verdict, Verdict::failed);
  EXPECT_NEAR(slow.change.value(), 0.1, 0.01);
  ASSERT_TRUE(slow.interval);
  EXPECT_LT(slow.interval->low, slow.change);
  EXPECT_GT(slow.interval->high, slow.change);
  EXPECT_EQ(judge_measured(noisy(1.05, 40), 0.05).verdict, Verdict::cannot_tell) << "the interval holds the margin";
  const std::vector<double> hiccup = {0.01, 0, 0, 0.02, 0, 1, 0.01, 0};
  EXPECT_EQ(judge_measured(hiccup, 0.05).verdict, Verdict::cannot_tell) << "one sample of eight was slow";
  EXPECT_EQ(judge_measured(noisy(1.1, 4), 0.05).verdict, Verdict::cannot_tell) << "too few";
  EXPECT_EQ(judge_measured(noisy(1.1, 40), 0.05).interval, slow.interval) << "the same in every call";
}

}  // namespace
}  // namespace tandem::eval
