#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <random>

#include "hardware/probe/probe.h"

namespace tandem::probe {
namespace {

TEST(ProbePercentile, KnownValues) {
  const std::vector<double> values = {4, 1, 3, 2};
  EXPECT_DOUBLE_EQ(percentile(values, 0), 1);
  EXPECT_DOUBLE_EQ(percentile(values, 50), 2.5);
  EXPECT_DOUBLE_EQ(percentile(values, 100), 4);
  EXPECT_DOUBLE_EQ(percentile(values, 10), 1.3);
  EXPECT_DOUBLE_EQ(percentile(std::vector<double>{7}, 90), 7);
}

// Oracle: the piecewise linear empirical quantile, evaluated by walking ranks found by counting instead of sorting.
double quantile_by_counting(const std::vector<double>& values, double percent) {
  const auto ranked = [&](std::size_t rank) {
    for (double candidate : values) {
      std::size_t below = 0, equal = 0;
      for (double other : values) {
        below += other < candidate ? 1u : 0u;
        equal += other == candidate ? 1u : 0u;
      }
      if (below <= rank && rank < below + equal) return candidate;
    }
    return std::nan("");
  };
  const double position = percent / 100 * static_cast<double>(values.size() - 1);
  const double low = ranked(static_cast<std::size_t>(std::floor(position)));
  const double high = ranked(static_cast<std::size_t>(std::ceil(position)));
  return low + (position - std::floor(position)) * (high - low);
}

TEST(ProbePercentile, MatchesCountingOracle) {
  std::mt19937 random(3);
  for (int trial = 0; trial < 300; ++trial) {
    std::vector<double> values(1 + random() % 40);
    for (double& value : values) value = static_cast<double>(random() % 25);  // ties
    const double percent = static_cast<double>(random() % 1001) / 10;
    EXPECT_NEAR(percentile(values, percent), quantile_by_counting(values, percent), 1e-9);
  }
}

TEST(ProbePercentile, RefusesNothingAndNan) {
  EXPECT_THROW(percentile({}, 50), ProbeError);
  EXPECT_THROW(percentile(std::vector<double>{1, std::nan("")}, 50), ProbeError);
}

TEST(ProbeSummary, OrdersPercentilesAndCounts) {
  std::mt19937 random(5);
  for (int trial = 0; trial < 50; ++trial) {
    std::vector<double> values(static_cast<std::size_t>(kMinRepeats) + random() % 20);
    for (double& value : values) value = std::exp(static_cast<double>(random() % 1000) / 100);
    const Figure figure = summarize(values);
    EXPECT_LE(figure.p10, figure.value);
    EXPECT_LE(figure.value, figure.p90);
    EXPECT_EQ(figure.repeats, static_cast<int>(values.size()));
  }
}

class ProbeRecorder : public ::testing::Test {
 protected:
  ProbeRecorder() { report_.sections.emplace_back(); }
  const Section& section() const { return report_.sections[0]; }
  Report report_;
};

TEST_F(ProbeRecorder, WarmsUpAndRepeatsAtLeastSevenTimes) {
  Recorder recorder(report_, 0, 10);
  int calls = 0;
  // The warm-up answers 100, every repeat 1: a warm-up that leaked into the figure would show in p90.
  recorder.figure(
      "f", "s", {{"n", 1}}, [&] { return calls++ == 0 ? 100.0 : 1.0; }, [](double s) { return 2 * s; });
  ASSERT_EQ(section().figures.size(), 1u);
  const Figure& figure = section().figures[0];
  EXPECT_GE(figure.repeats, kMinRepeats);
  EXPECT_LE(figure.repeats, kMaxRepeats);
  EXPECT_EQ(calls, figure.repeats + 1);
  EXPECT_EQ(figure.value, 2);
  EXPECT_EQ(figure.p90, 2);
}

TEST_F(ProbeRecorder, SkipsAndNamesWhatDoesNotFit) {
  Recorder spent(report_, 0, 0);
  int calls = 0;
  spent.figure(
      "late", "s", {{"n", 3}}, [&] { return static_cast<double>(++calls); }, [](double s) { return s; });
  EXPECT_EQ(calls, 0);
  ASSERT_EQ(section().skipped.size(), 1u);
  EXPECT_EQ(section().skipped[0], "late (n=3)");

  // Half a second is left and one repeat takes 0.1 s: seven do not fit.
  Recorder tight(report_, 0, 0.5);
  const auto slow = [&] {
    const auto start = Clock::now();
    while (seconds_since(start) < 0.1) {
    }
    return 0.1;
  };
  tight.figure("slow", "s", {}, slow, [](double s) { return s; });
  EXPECT_EQ(section().skipped.size(), 2u);
  EXPECT_TRUE(section().figures.empty());
}

// A figure that cannot be measured costs itself; what else goes wrong is the section's.
TEST_F(ProbeRecorder, LeavesOutByNameWhatCannotBeMeasured) {
  Recorder recorder(report_, 0, 10);
  for (const int fails_at : {0, 3}) {
    int calls = 0;
    recorder.figure(
        "held", "s", {{"n", fails_at}},
        [&] {
          if (calls++ == fails_at) throw FigureError("The host was late.");
          return 1.0;
        },
        [](double s) { return s; });
  }
  recorder.figure(
      "next", "s", {}, [] { return 1.0; }, [](double s) { return s; });
  EXPECT_EQ(section().skipped,
            (std::vector<std::string>{"held (n=0): The host was late.", "held (n=3): The host was late."}));
  ASSERT_EQ(section().figures.size(), 1u);
  EXPECT_EQ(section().figures[0].name, "next");
  const auto broken = []() -> double { throw ProbeError("The device is gone."); };
  EXPECT_THROW(recorder.collect("broken", broken), ProbeError);
}

}  // namespace
}  // namespace tandem::probe
