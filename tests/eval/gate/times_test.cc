// Virtual and measured times of a gate.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/common/error.h"
#include "eval/gate/gate.h"
#include "tests/eval/gate/fixtures.h"

namespace tandem::eval {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;
using ::testing::ThrowsMessage;

using GateOfTimes = TwoRuns;

TEST_F(GateOfTimes, VirtualTimesFailAboveTheMarginAtAnyLength) {
  Changes slow;
  double ratio = 1.001;
  slow.timing = [&](SampleTiming& t) {
    if (is_hybrid(t) && t.length == 2048) slow_down(t, ratio);
  };
  EXPECT_EQ(gate(slow).verdict, Verdict::passed);
  GateOptions exactly;
  exactly.latency_margin = 0;
  EXPECT_THAT(failures_of(gate(slow, {}, exactly)),
              ElementsAre(HasSubstr("hybrid:budget=0.2: TPOT at 2K rose by +0.1 %, from 2 to 2.002 ms; the margin is 0 "
                                    "%; idle time of a step 0.7333 → 0.7347 ms, most of it for host attention")));
  ratio = 1.015;
  const Gate result = gate(slow);
  EXPECT_EQ(result.verdict, Verdict::failed);
  EXPECT_EQ(result.methods[0].verdict, Verdict::passed);
  EXPECT_THAT(failures_of(result), ElementsAre(HasSubstr("TPOT at 2K rose by +1.5 %")));
  ratio = 0.5;
  EXPECT_EQ(gate(slow, {}, exactly).verdict, Verdict::passed) << "faster";
}

// One sample's steps take four times as long, and its answer is longer in the run.
TEST_F(GateOfTimes, ALongerAnswerIsNoLongerStep) {
  Changes before, after;
  before.timing = [](SampleTiming& t) {
    if (t.index == 0)
      for (std::int64_t& ns : t.step_ns) ns *= 4;
  };
  after.timing = [&](SampleTiming& t) {
    before.timing(t);
    if (t.index != 0) return;
    t.step_ns.resize(40, t.step_ns.back());
    t.steps = 41;
  };
  GateOptions exactly;
  exactly.latency_margin = 0;
  EXPECT_EQ(gate(after, before, exactly).verdict, Verdict::passed);
  EXPECT_EQ(gate(before, after, exactly).verdict, Verdict::passed);
  EXPECT_TRUE(gate(before, before).methods[0].idle_compared);
  EXPECT_THAT(gate_json(gate(before, before)), HasSubstr("idle_ms"));
}

// Idle time is known of all steps together, which are others where an answer goes on: no cause of what the common ones
// take.
TEST_F(GateOfTimes, IdleTimeOfOtherStepsIsNotCompared) {
  Changes longer;
  longer.timing = [](SampleTiming& t) {
    slow_down(t, 1.5);
    if (t.index != 0) return;
    t.step_ns.resize(40, t.step_ns.back());
    t.steps = 41;
  };
  const Gate result = gate(longer);
  EXPECT_EQ(result.verdict, Verdict::failed);
  EXPECT_FALSE(result.methods[0].idle_compared);
  EXPECT_THAT(failures_of(result), Each(Not(HasSubstr("idle time"))));
  EXPECT_THAT(gate_json(result), Not(HasSubstr("idle_ms")));
}

TEST_F(GateOfTimes, ATimeThatOneRunDoesNotHaveIsADoubt) {
  for (const bool measured : {false, true}) {
    Changes stepping, stopping;  // with and without a token after the first
    if (measured) stepping.manifest = stopping.manifest = kOnACpu;
    stopping.timing = [](SampleTiming& t) {
      t.steps = 1;
      t.step_ns.clear();
    };
    const Gate result = gate(stopping, stepping);
    EXPECT_EQ(result.verdict, Verdict::cannot_tell);
    EXPECT_THAT(failures_of(result), IsEmpty());
    EXPECT_THAT(doubts_of(result), Contains(StartsWith("full: nothing shows whether TPOT")));
    EXPECT_THAT(doubts_of(result), Each(EndsWith("rose: no sample of the run has a second token.")));
    EXPECT_THAT(doubts_of(gate(stepping, stopping)), Each(HasSubstr("of the baseline has")));
    const Gate neither = gate(stopping, stopping);
    EXPECT_EQ(neither.verdict, Verdict::passed);
    EXPECT_FALSE(neither.methods[0].after->tpot_ms);
    EXPECT_THAT(gate_json(result), AllOf(HasSubstr("cannot tell"), Not(HasSubstr("nan"))));
    EXPECT_THAT(gate_text(neither, true), HasSubstr("| - | passed |"));
  }
}

TEST_F(GateOfTimes, TimeToTheFirstTokenIsJudgedToo) {
  Changes slow;
  slow.timing = [](SampleTiming& t) { t.prefill_ns += 1000000; };
  EXPECT_THAT(failures_of(gate(slow)), AllOf(Contains(HasSubstr("full: TTFT at 1K rose by +16.7 %, from 6 to 7 ms")),
                                             Each(Not(HasSubstr("TPOT"))), Each(Not(HasSubstr("idle")))));
}

TEST_F(GateOfTimes, MeasuredTimesFailAboveTheNoise) {
  const auto run_at = [](double ratio) {
    Changes changes;
    changes.manifest = kOnACpu;
    changes.timing = [ratio](SampleTiming& t) { slow_down(t, ratio * (1 + 0.002 * (t.index % 21) - 0.02)); };
    return changes;
  };
  EXPECT_EQ(gate(run_at(1), run_at(1.01)).verdict, Verdict::passed);
  EXPECT_EQ(gate(run_at(1.02), run_at(1)).verdict, Verdict::passed) << "less than machines vary";
  const Gate slow = gate(run_at(1.1), run_at(1));
  EXPECT_EQ(slow.verdict, Verdict::failed);
  EXPECT_THAT(failures_of(slow), Contains(HasSubstr("full: TPOT rose by +10.0 % [+10.0, +10.0] in the geometric mean "
                                                    "of the samples' ratios; the margin is 5 %.")));
  const RunFolder baseline = write_gate_run(root_ / "baseline", run_at(1));
  const RunFolder run = write_gate_run(root_ / "run", run_at(1.1));
  std::vector<RunFolder> noise;
  noise.push_back(write_gate_run(root_ / "noise", run_at(0.88)));
  const Gate noisy = judge(baseline, run, noise, {});
  EXPECT_EQ(noisy.verdict, Verdict::passed) << "the machine varies by 12 %";
  EXPECT_NEAR(noisy.methods[0].times[0].margin, 0.12, 1e-3);
}

TEST_F(GateOfTimes, SamplesOfABatchCountOnce) {
  Changes batched;
  batched.manifest = [](Manifest& m) {
    kOnACpu(m);
    m.command += " --batch 60";
  };
  EXPECT_EQ(gate(batched, batched).methods[0].times[0].verdict, Verdict::cannot_tell) << "four batches at two lengths";
}

TEST_F(GateOfTimes, NoiseIsForMeasuredTimes) {
  const RunFolder folder = write_gate_run(root_ / "baseline");
  std::vector<RunFolder> noise;
  noise.push_back(RunFolder::open(root_ / "baseline"));
  EXPECT_THAT([&] { judge(folder, folder, noise, {}); }, ThrowsMessage<InputError>(HasSubstr("simulated for h200")));
}

}  // namespace
}  // namespace tandem::eval
