#include "eval/gate/gate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/common/error.h"
#include "tests/eval/gate/fixtures.h"

namespace tandem::eval {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::ThrowsMessage;

using GateOfRuns = TwoRuns;

TEST_F(GateOfRuns, ARunIsAsGoodAsItself) {
  for (const bool measured : {false, true}) {
    for (const std::uint32_t samples : {1u, 3u, 120u}) {
      Changes same;
      same.manifest = [&](Manifest& m) {
        if (measured) kOnACpu(m);
        m.samples = samples;
      };
      GateOptions options;
      options.latency_margin = 0;
      options.same_tokens = true;
      const RunFolder folder = write_gate_run(root_ / "run", same);
      const Gate result = judge(folder, folder, {}, options);
      const bool few_times = measured && samples * 2 < 5;  // each at two lengths
      EXPECT_EQ(result.verdict, few_times ? Verdict::cannot_tell : Verdict::passed);
      EXPECT_THAT(failures_of(result), IsEmpty());
      EXPECT_THAT(result.notes, IsEmpty());
      for (const MethodVerdict& m : result.methods) {
        EXPECT_EQ(m.accuracy.change.difference.value, 0);
        for (const TimeVerdict& time : m.times) EXPECT_EQ(time.change, 0);
        EXPECT_EQ(m.times.size(), measured ? 2u : 4u);
      }
    }
  }
}

TEST_F(GateOfRuns, FewSamplesTellEnoughWhereTheirTokensAreTheSame) {
  const auto few = [](Manifest& m) { m.samples = 3; };
  Changes baseline, same, other, rescored;
  for (Changes* changes : {&baseline, &same, &other, &rescored}) changes->manifest = few;
  GateOptions strict;
  strict.strict = true;
  const Gate passed = gate(same, baseline, strict);
  EXPECT_EQ(passed.verdict, Verdict::passed);
  EXPECT_THAT(gate_text(passed, true), HasSubstr("Of full and hybrid:budget=0.2, all samples have the baseline's"));
  other.sample = [](SampleResult& s) { s.tokens.back() += 1; };
  EXPECT_EQ(gate(other, baseline, strict).verdict, Verdict::failed);
  rescored.sample = [](SampleResult& s) {
    if (s.index == 2) s.score = 0;
  };
  EXPECT_EQ(gate(rescored, baseline).verdict, Verdict::cannot_tell) << "what scores them may have broken";
}

TEST_F(GateOfRuns, AMethodThatBrokeFailsAndTheOthersPass) {
  Changes broken;
  broken.sample = [](SampleResult& s) {
    if (is_hybrid(s) && s.length == 2048) s.score = 0;
  };
  const Gate result = gate(broken);
  EXPECT_EQ(result.verdict, Verdict::failed);
  EXPECT_EQ(result.methods[0].verdict, Verdict::passed);
  EXPECT_EQ(result.methods[1].verdict, Verdict::failed);
  EXPECT_THAT(failures_of(result),
              ElementsAre(AllOf(HasSubstr("hybrid:budget=0.2: accuracy fell by 40.0 points, from 80.0 to 40.0 % (96 "
                                          "samples lost and 0 gained, McNemar's p "),
                                HasSubstr("most in niah_single_1."))));
  GateOptions others;
  others.methods = {"full"};
  EXPECT_EQ(gate(broken, {}, others).verdict, Verdict::passed);
}

TEST_F(GateOfRuns, ABaselineIsOlderThanAnOption) {
  Changes older, newer;
  older.manifest = [](Manifest& m) { m.methods[1] = {"hybrid:budget=0.2", "hybrid-fixed", {{"budget", "0.2"}}, ""}; };
  newer.manifest = [&](Manifest& m) {
    older.manifest(m);
    m.methods[1].options.emplace_back("digest", "bounds");
  };
  const Gate same = gate(newer, older);
  EXPECT_TRUE(same.methods[1].tokens_compared);
  EXPECT_EQ(gate_text(same, false).find("digest"), std::string::npos);
  newer.manifest = [&](Manifest& m) {
    older.manifest(m);
    m.methods[1].options.emplace_back("digest", "mean");
  };
  const Gate other = gate(newer, older);
  EXPECT_FALSE(other.methods[1].tokens_compared);
  EXPECT_THAT(gate_text(other, false), HasSubstr("digest is bounds in the baseline and mean in the run"));
}

TEST_F(GateOfRuns, ALostDocumentIsNoTwelveLostSamples) {
  Changes before, lost;
  bool known = false;
  before.manifest = lost.manifest = [](Manifest& m) { m.lengths = {1024}; };
  before.sample = [&](SampleResult& s) {
    if (known) s.document = s.index / 12;
  };
  lost.sample = [&](SampleResult& s) {
    before.sample(s);
    if (is_hybrid(s) && s.index / 12 == 3) s.score = 0;
  };
  EXPECT_EQ(gate(lost, before).verdict, Verdict::failed) << "of 120 that do not depend on each other";
  known = true;
  EXPECT_EQ(gate(lost, before).verdict, Verdict::cannot_tell) << "of 10 documents";
}

TEST_F(GateOfRuns, AFewLostSamplesPassOrLeaveADoubt) {
  Changes lost;
  std::uint32_t most = 1;
  lost.sample = [&](SampleResult& s) {
    if (is_hybrid(s) && s.index >= 1 && s.index <= most) s.score = 0;  // at both lengths
  };
  EXPECT_EQ(gate(lost).verdict, Verdict::passed) << "2 of 240";
  most = 2;
  const Gate four = gate(lost);
  EXPECT_EQ(four.verdict, Verdict::cannot_tell) << "4 of 240";
  EXPECT_THAT(failures_of(four), IsEmpty());
  EXPECT_THAT(doubts_of(four), ElementsAre(AllOf(HasSubstr("240 samples cannot exclude"),
                                                 HasSubstr("3.7 with hybrid:budget=0.2. With about "))));
  GateOptions strict;
  strict.strict = true;
  const Gate strictly = gate(lost, {}, strict);
  EXPECT_EQ(strictly.verdict, Verdict::failed);
  EXPECT_THAT(gate_text(strictly, false), HasSubstr("Failed: --strict, and the samples are too few"));
}

TEST_F(GateOfRuns, TheFailuresOfManyMethodsAreNotCountedOneByOne) {
  Changes lost;
  const auto many = [](Manifest& m) {
    for (int i = 0; i < 12; ++i) m.methods.push_back({"m" + std::to_string(i), "m", {}, {}});
  };
  lost.sample = [](SampleResult& s) {
    if (is_hybrid(s) && s.index % 40 == 1) s.score = 0;  // 6 of 240
  };
  EXPECT_EQ(gate(lost).verdict, Verdict::failed);
  lost.manifest = many;
  Changes baseline;
  baseline.manifest = many;
  const Gate doubtful = gate(lost, baseline);
  EXPECT_EQ(doubtful.verdict, Verdict::cannot_tell);
  EXPECT_THAT(doubts_of(doubtful),
              Contains(AllOf(HasSubstr("-2.5 [-4.9, -0.3] with hybrid:budget=0.2 (most of it in niah_single_1), -2.5"),
                             HasSubstr("Of 14 methods that lose nothing, one or more have such an interval in 30 %"))));
  EXPECT_THAT(gate_text(doubtful, false), HasSubstr("Passed: no loss is significant, but"));
}

TEST_F(GateOfRuns, OtherTokensAreNotedOrFail) {
  Changes other;
  other.sample = [](SampleResult& s) {
    if (is_hybrid(s) && s.index < 3) s.tokens.back() += 1;
  };
  const char* sentence = "hybrid:budget=0.2: 6 of 240 samples have other tokens than in the baseline.";
  const Gate noted = gate(other);
  EXPECT_EQ(noted.verdict, Verdict::passed);
  EXPECT_THAT(gate_text(noted, true), HasSubstr(std::string("Note: ") + sentence));
  GateOptions same;
  same.same_tokens = true;
  EXPECT_THAT(failures_of(gate(other, {}, same)), ElementsAre(sentence));
  other.manifest = [](Manifest& m) { m.command += " --precision bf16"; };
  EXPECT_THAT(failures_of(gate(other, {}, same)), ElementsAre(sentence)) << "which is what auto came to";
  other.manifest = [](Manifest& m) { m.prefill_chunk = 256; };
  EXPECT_THAT([&] { gate(other, {}, same); },
              ThrowsMessage<InputError>(HasSubstr("options, precision or prefill chunk, so that")));
  other.manifest = [](Manifest& m) { m.isa = "avx512"; };
  EXPECT_EQ(gate(other).methods[1].other_tokens, 0u) << "another instruction set rounds differently";
  EXPECT_THAT([&] { gate(other, {}, same); }, ThrowsMessage<InputError>(HasSubstr("--same-tokens: full is not")));
}

TEST_F(GateOfRuns, AMethodThatTheRunLacksFailsAndOneThatItAddsIsNoted) {
  Changes without;
  without.manifest = [](Manifest& m) { m.methods[1] = {"streaming", "streaming", {}, {}}; };
  const Gate result = gate(without);
  EXPECT_EQ(result.verdict, Verdict::failed);
  EXPECT_THAT(failures_of(result),
              ElementsAre("hybrid:budget=0.2: the run does not have this method of the baseline."));
  EXPECT_THAT(result.notes, ElementsAre("streaming is in the run only and was not judged."));
  GateOptions unknown;
  unknown.methods = {"ful"};
  EXPECT_THAT([&] { gate({}, {}, unknown); },
              ThrowsMessage<InputError>(AllOf(HasSubstr("no method 'ful'. Did you mean 'full'?"),
                                              HasSubstr("It has full and hybrid:budget=0.2."))));
}

TEST_F(GateOfRuns, AMethodOfOtherOptionsIsJudgedAndThatIsSaid) {
  Changes smaller;
  smaller.manifest = [](Manifest& m) { m.methods[1] = {"hybrid:budget=0.1", "hybrid", {{"budget", "0.1"}}, "c1"}; };
  const Gate result = gate(smaller);
  EXPECT_EQ(result.methods[1].run_label, "hybrid:budget=0.1");
  EXPECT_EQ(result.verdict, Verdict::passed);
  EXPECT_FALSE(result.methods[1].tokens_compared);
  EXPECT_THAT(result.notes, ElementsAre("hybrid:budget=0.2: budget is 0.2 in the baseline and 0.1 in the run."));
  smaller.manifest = [](Manifest& m) {
    m.methods = {{"full", "full", {}, {}}, {"hybrid:a", "hybrid", {}, {}}, {"hybrid:b", "hybrid", {}, {}}};
  };
  EXPECT_EQ(gate(smaller).verdict, Verdict::failed) << "nobody knows which of the two it is";
}

TEST_F(GateOfRuns, WhatBothRunsHaveIsComparedAndSaid) {
  Changes fewer;
  fewer.manifest = [](Manifest& m) {
    m.lengths = {2048, 4096};
    m.samples = 100;
  };
  Changes slow_elsewhere;
  slow_elsewhere.timing = [](SampleTiming& t) {
    if (t.length == 1024 || t.index >= 100) slow_down(t, 3);
  };
  EXPECT_THAT([&] { gate(fewer, slow_elsewhere); },
              ThrowsMessage<InputError>(AllOf(HasSubstr("it lacks the length 1024"), HasSubstr("--subset"))));
  GateOptions subset;
  subset.subset = true;
  const Gate result = gate(fewer, slow_elsewhere, subset);
  EXPECT_EQ(result.samples, 100u);
  EXPECT_THAT(result.notes, ElementsAre("100 samples of a method are in both runs and were compared; the baseline has "
                                        "240, the run 200."));
  for (const TimeVerdict& time : result.methods[0].times) {
    EXPECT_EQ(time.length, 2048u);
    EXPECT_EQ(time.change, 0) << time.what;
  }
  fewer.manifest = [](Manifest& m) { m.samples = 100; };
  EXPECT_THAT([&] { gate(fewer); }, ThrowsMessage<InputError>(HasSubstr("it lacks 20 of the 120 samples of ")));
  fewer.manifest = [](Manifest& m) { m.tasks = {"niah_single_2"}; };
  EXPECT_THAT([&] { gate(fewer); }, ThrowsMessage<InputError>(HasSubstr("it lacks the task ")));
  EXPECT_THAT([&] { gate(fewer, {}, subset); }, ThrowsMessage<InputError>(HasSubstr("no sample of the same task")));
}

TEST_F(GateOfRuns, BatchesWithOtherSamplesAreLeftOutOfTheTimes) {
  const auto of = [](std::uint32_t samples) {
    Changes changes;
    changes.manifest = [samples](Manifest& m) {
      m.command = "tandem compare --batch 8 --samples " + std::to_string(samples);
      m.samples = samples;
    };
    // The last batch of 100 has four sequences, which step faster than eight do.
    changes.timing = [samples](SampleTiming& t) {
      if (samples == 100 && t.index >= 96) slow_down(t, 0.5);
    };
    return changes;
  };
  for (const auto& [run, baseline] : {std::pair{120u, 100u}, std::pair{100u, 120u}}) {
    GateOptions subset;
    subset.subset = true;
    const Gate result = gate(of(run), of(baseline), subset);
    EXPECT_EQ(result.samples, 200u);  // their accuracy is compared
    ASSERT_EQ(result.methods[0].times.size(), 4u);
    for (const TimeVerdict& time : result.methods[0].times) EXPECT_EQ(time.change, 0) << time.what;
    EXPECT_THAT(result.notes, Contains(HasSubstr("Batches of 8 that have other samples")));
  }
}

TEST_F(GateOfRuns, WhereNoTimeCanBeComparedNothingIsSaidOfTimes) {
  for (const bool measured : {false, true}) {
    const auto of = [&](std::uint32_t samples, double ratio) {
      Changes changes;
      changes.manifest = [=](Manifest& m) {
        if (measured) kOnACpu(m);
        m.command = "tandem compare --batch 128 --samples " + std::to_string(samples);
        m.samples = samples;
      };
      changes.timing = [=](SampleTiming& t) { slow_down(t, ratio); };
      return changes;
    };
    GateOptions strict;
    strict.strict = true;
    const Gate slow = gate(of(120, 10), of(100, 1), strict);
    EXPECT_EQ(slow.verdict, Verdict::failed);
    EXPECT_THAT(doubts_of(slow), Contains(AllOf(HasSubstr("nothing shows whether TPOT or TTFT"),
                                                HasSubstr("no batch of the two runs has the same samples"))));
    EXPECT_EQ(slow.methods[0].times.size(), measured ? 1u : 2u);
    EXPECT_EQ(gate_text(gate(of(120, 10), of(100, 1)), false).find("takes longer"), std::string::npos);
  }
}

TEST_F(GateOfRuns, RunsWithoutTimesPassByAccuracyAlone) {
  Changes untimed;
  untimed.manifest = [](Manifest& m) { m.clock = ""; };
  const std::string text = gate_text(gate(untimed, untimed), false);
  EXPECT_THAT(text, HasSubstr("Passed: no method loses more than 3 points.\n"));
}

TEST_F(GateOfRuns, OnlyAnotherRunOfTheBaselinesProgramIsNoise) {
  Changes measured;
  measured.manifest = kOnACpu;
  const RunFolder baseline = write_gate_run(root_ / "baseline", measured),
                  run = write_gate_run(root_ / "run", measured);
  const auto refused = [&](const char* folder) {
    std::vector<RunFolder> noise;
    noise.push_back(RunFolder::open(root_ / folder));
    try {
      judge(baseline, run, noise, {});
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(refused("run"), HasSubstr("is the run that is judged"));
  measured.manifest = [](Manifest& m) {
    kOnACpu(m);
    m.programs[0].git_commit = "def";
  };
  write_gate_run(root_ / "other", measured);
  EXPECT_THAT(refused("other"), HasSubstr("is of another program than the baseline"));
  measured.manifest = [](Manifest& m) {
    kOnACpu(m);
    m.methods[1].options[0].second = "0.3";
  };
  write_gate_run(root_ / "options", measured);
  EXPECT_THAT(refused("options"), HasSubstr("no method 'hybrid:budget=0.2' with the baseline's options"));
  measured.manifest = [](Manifest& m) {
    kOnACpu(m);
    m.lengths = {4096};
  };
  write_gate_run(root_ / "lengths", measured);
  EXPECT_THAT(refused("lengths"), HasSubstr("shares no time of 'full' with the baseline"));
}

TEST_F(GateOfRuns, ARunOfNoSamplesIsRefused) {
  Changes none;
  none.manifest = [](Manifest& m) { m.samples = 0; };
  EXPECT_THAT([&] { gate(none, none); }, ThrowsMessage<InputError>(HasSubstr("has no samples")));
}

TEST_F(GateOfRuns, SamplesOfAnotherTextAreRefused) {
  Changes other;
  other.sample = [](SampleResult& s) { s.answers = {"7654321"}; };
  EXPECT_THAT([&] { gate(other); }, ThrowsMessage<InputError>(HasSubstr("Sample 0 of niah_single_1 at 1K is another")));
}

TEST_F(GateOfRuns, RunsWithoutTimesAreJudgedByAccuracy) {
  Changes untimed;
  untimed.manifest = [](Manifest& m) { m.clock.clear(); };
  const Gate result = gate(untimed, untimed);
  EXPECT_EQ(result.verdict, Verdict::passed);
  EXPECT_THAT(gate_text(result, false), AllOf(HasSubstr("80.0 → 80.0"), Not(HasSubstr("TPOT ms"))));
}

}  // namespace
}  // namespace tandem::eval
