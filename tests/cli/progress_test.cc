#include "cli/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace tandem::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

/// A clock that stands where the test puts it, and all that was written.
struct Screen {
  double seconds = 100;
  std::vector<std::string> written;

  Progress::Options options(bool terminal, bool quiet = false) {
    Progress::Options result;
    result.quiet = quiet;
    result.terminal = terminal;
    result.columns = 120;
    result.now = [this] { return seconds; };
    result.write = [this](std::string_view text) { written.emplace_back(text); };
    return result;
  }
};

TEST(TimeLeft, SaysNothingBeforeTwoIntervals) {
  TimeLeft left;
  EXPECT_FALSE(left.seconds_left(0));
  left.update(0, 0, 10);
  EXPECT_FALSE(left.seconds_left(1));
  left.update(2, 1, 10);
  EXPECT_FALSE(left.seconds_left(2));
  left.update(4, 2, 10);
  ASSERT_TRUE(left.seconds_left(4));
  EXPECT_DOUBLE_EQ(*left.seconds_left(4), 16);
}

TEST(TimeLeft, DoesNotTakeAResumedRunForAFastOne) {
  TimeLeft left;
  left.update(0, 90, 100);  // 90 were there before
  left.update(5, 91, 100);
  left.update(10, 92, 100);
  EXPECT_DOUBLE_EQ(*left.seconds_left(10), 40);
}

TEST(TimeLeft, OneLongPauseCountsAsEightTimesTheMedian) {
  TimeLeft left;
  left.update(0, 0, 100);
  double now = 0;
  for (std::uint64_t done = 1; done <= 20; ++done) left.update(now += done == 10 ? 36000 : 1, done, 100);
  EXPECT_DOUBLE_EQ(*left.seconds_left(now), 80 * (19 + 8) / 20.0);
}

TEST(TimeLeft, CountsDownInsideAnIntervalButNotBelowTheOthers) {
  TimeLeft left;
  left.update(0, 0, 4);
  left.update(10, 1, 4);
  left.update(20, 2, 4);
  EXPECT_DOUBLE_EQ(*left.seconds_left(25), 15);
  EXPECT_DOUBLE_EQ(*left.seconds_left(30), 10);
  EXPECT_DOUBLE_EQ(*left.seconds_left(3000), 10);
}

TEST(TimeLeft, SurvivesRepeatsInstantUnitsAndAChangedTotal) {
  TimeLeft left;
  left.update(0, 0, 4);
  left.update(0, 1, 4);
  left.update(0, 2, 4);
  left.update(7, 2, 4);  // nothing finished
  EXPECT_DOUBLE_EQ(*left.seconds_left(7), 0);
  left.update(8, 3, 2);  // fewer in total than done
  EXPECT_DOUBLE_EQ(*left.seconds_left(8), 0);
  left.update(9, 0, 4);  // a new count starts over
  EXPECT_FALSE(left.seconds_left(9));
}

TEST(TimeLeft, IsNearTheTruthForMixedLengths) {
  std::mt19937 random(11);
  for (int round = 0; round < 50; ++round) {
    TimeLeft left;
    left.update(0, 0, 400);
    double now = 0;
    for (std::uint64_t done = 1; done <= 200; ++done) {
      now += std::uniform_int_distribution<int>(0, 1)(random) == 0 ? 1.0 : 4.0;  // short and long samples
      left.update(now, done, 400);
    }
    EXPECT_NEAR(*left.seconds_left(now), 500, 75);
  }
}

TEST(ClockText, ReadsLikeAStopwatch) {
  EXPECT_EQ(clock_text(0), "0:00");
  EXPECT_EQ(clock_text(-3), "0:00");
  EXPECT_EQ(clock_text(59.6), "1:00");
  EXPECT_EQ(clock_text(3599.4), "59:59");
  EXPECT_EQ(clock_text(3600), "1:00:00");
  EXPECT_EQ(clock_text(90061), "25:01:01");
}

TEST(Progress, RedrawsOneLineOnATerminal) {
  Screen screen;
  {
    Progress progress("compare", screen.options(true));
    progress.update(0, 4);
    screen.seconds += 2;
    progress.update(1, 4, "niah_single 4096");
    screen.seconds += 0.01;
    progress.update(2, 4);  // too soon to redraw
    screen.seconds += 1.99;
    progress.update(3, 4);
    screen.seconds += 1;
    progress.update(4, 4);
  }
  EXPECT_THAT(screen.written,
              ElementsAre("\rcompare: 0 of 4 (0%), 0:00 so far, time left not known yet\x1b[K",
                          "\rcompare: 1 of 4 (25%), 0:02 so far, time left not known yet  niah_single 4096\x1b[K",
                          AllOf(StartsWith("\rcompare: 3 of 4 (75%), 0:04 so far, about "), EndsWith(" left\x1b[K")),
                          "\rcompare: 4 of 4 (100%), 0:05 so far\x1b[K", "\n"));
}

TEST(Progress, NeverWrapsOnANarrowTerminal) {
  Screen screen;
  auto options = screen.options(true);
  options.columns = 20;
  Progress progress("compare", options);
  progress.update(0, 4, "a very long name of a task");
  ASSERT_EQ(screen.written.size(), 1u);
  EXPECT_EQ(screen.written[0], "\rcompare: 0 of 4 (0%\x1b[K");
}

TEST(Progress, WritesAPlainLineEveryTenSecondsElsewhere) {
  Screen screen;
  Progress progress("compare", screen.options(false));
  for (std::uint64_t done = 0; done <= 35; ++done) {
    progress.update(done, 35);
    screen.seconds += 1;
  }
  progress.finish();
  ASSERT_EQ(screen.written.size(), 4u);
  EXPECT_EQ(screen.written[0], "compare: 10 of 35 (28%), 0:10 so far, about 0:25 left\n");
  EXPECT_THAT(screen.written[3], StartsWith("compare: 35 of 35 (100%)"));
  for (const auto& line : screen.written)
    EXPECT_THAT(line, AllOf(EndsWith("\n"), Not(HasSubstr("\r")), Not(HasSubstr("\x1b"))));
}

TEST(Progress, ShortRunsInALogSayNothing) {
  Screen screen;
  Progress progress("compare", screen.options(false));
  progress.update(0, 2);
  screen.seconds += 1;
  progress.update(2, 2);
  progress.finish();
  EXPECT_THAT(screen.written, IsEmpty());
}

TEST(Progress, SaysHundredPercentOnlyAtTheEnd) {
  Screen screen;
  Progress progress("x", screen.options(true));
  progress.update(1999, 2000);
  EXPECT_THAT(screen.written.at(0), HasSubstr("(99%)"));
}

TEST(Progress, QuietWritesNothingAndFinishIsFinal) {
  Screen screen;
  {
    Progress quiet("compare", screen.options(true, true));
    quiet.update(1, 2);
  }
  EXPECT_THAT(screen.written, IsEmpty());
  Progress progress("compare", screen.options(true));
  progress.update(1, 2);
  progress.finish();
  const auto count = screen.written.size();
  progress.update(2, 2);
  progress.finish();
  EXPECT_EQ(screen.written.size(), count);
}

TEST(Progress, TakesUpdatesFromSeveralThreads) {
  Screen screen;
  Progress progress("x", screen.options(true));
  std::vector<std::thread> threads;
  for (int index = 0; index < 4; ++index) {
    threads.emplace_back([&progress] {
      for (std::uint64_t done = 0; done < 200; ++done) progress.update(done, 200, "sample");
    });
  }
  for (auto& thread : threads) thread.join();
  progress.finish();
  EXPECT_THAT(screen.written.back(), "\n");
}

}  // namespace
}  // namespace tandem::cli
