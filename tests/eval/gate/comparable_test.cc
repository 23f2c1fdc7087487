#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/common/error.h"
#include "eval/gate/runs.h"
#include "tests/eval/gate/fixtures.h"

namespace tandem::eval {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Edit = std::function<void(Manifest&)>;

/// What check_comparable() says of two runs; empty: nothing.
std::string refusal(const Edit& baseline, const Edit& run, bool any_machine = false) {
  const TemporaryFolder root;
  Changes a, b;
  a.manifest = [&](Manifest& m) { m.samples = 2, baseline(m); };
  b.manifest = [&](Manifest& m) { m.samples = 2, run(m); };
  const RunFolder there = write_gate_run(root / "baseline", a), here = write_gate_run(root / "run", b);
  try {
    check_comparable(there, here, any_machine);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

const Edit kAsItIs = [](Manifest&) {};
const Edit kMeasured = [](Manifest& m) {
  m.clock = "measured on A CPU, 2 threads";
  m.hardware_profile.clear();
  m.hardware_hash.clear();
};

const Edit kOnGpu = [](Manifest& m) {
  kMeasured(m);
  m.clock = "measured on NVIDIA H200, host A CPU, 15 threads";
  m.machine.device = "NVIDIA H200";
};

TEST(GateComparable, RunsOfOneCommandAre) {
  EXPECT_EQ(refusal(kAsItIs, kAsItIs), "");
  EXPECT_EQ(refusal(kMeasured, kMeasured), "");
  EXPECT_EQ(refusal(kOnGpu, kOnGpu), "");
  EXPECT_EQ(refusal(kAsItIs,
                    [](Manifest& m) {
                      m.programs[0].git_commit = "def";
                      m.isa = "avx512";
                      m.machine.cpu_model = "another CPU";
                      m.samples = 1;
                    }),
            "")
      << "virtual time is the same on every machine";
}

TEST(GateComparable, WhatDiffersIsNamedWithBothValues) {
  struct Case {
    Edit baseline, run;
    const char *field, *run_value, *baseline_value;
  };
  const Case cases[] = {
      {kAsItIs, [](Manifest& m) { m.weights_hash = "w2"; }, "the hash of the weights", "w2", "w1"},
      {kAsItIs, [](Manifest& m) { m.config_hash = "c2"; }, "config.json", "c2", "c1"},
      {kAsItIs, [](Manifest& m) { m.tokenizer_hash = "t2"; }, "the hash of the tokenizer", "t2", "t1"},
      {kAsItIs, [](Manifest& m) { m.seed = 7; }, "the seed", "7", "42"},
      {kAsItIs, [](Manifest& m) { m.protocol_id = "ruler/embedded-v2"; }, "the protocol's field 'variant'",
       "ruler/embedded-v2", "ruler/embedded-v1"},
      {[](Manifest& m) { m.protocol_id = "ruler/embedded-v4+eos:stops"; },
       [](Manifest& m) { m.protocol_id = "ruler/embedded-v4+eos:ignored"; }, "the protocol's field 'eos'", "ignored",
       "stops"},
      {[](Manifest& m) { m.protocol_id = "ruler/embedded-v4+budget:a=tokens,hybrid=share"; },
       [](Manifest& m) { m.protocol_id = "ruler/embedded-v4+budget:b=pages,hybrid=tokens"; },
       "what a budget of 'hybrid' counts", "tokens", "share"},
      {kAsItIs, [](Manifest& m) { m.hardware_hash = "h2"; }, "the hardware profile", "h200 (h2)", "h200 (h1)"},
      {[](Manifest& m) { m.hardware_hash.clear(); }, [](Manifest& m) { m.hardware_profile = "h100"; },
       "the hardware profile", "h100", "h200"},
      {kAsItIs, kMeasured, "the clock", "measured on A CPU, 2 threads", "simulated for h200"},
      {[](Manifest& m) { m.command += " --batch 4"; }, kAsItIs, "--batch", "1", "4"},
      {kMeasured,
       [](Manifest& m) {
         kMeasured(m);
         m.machine.cores = 64;
       },
       "the machine", "A CPU, 64 cores", "A CPU, 2 cores"},
      {kMeasured,
       [](Manifest& m) {
         kMeasured(m);
         m.clock = "measured on A CPU, 1 threads";
       },
       "the clock", "1 threads", "2 threads"},
      {kOnGpu,
       [](Manifest& m) {
         kOnGpu(m);
         m.clock = "measured on NVIDIA H200, host A CPU, 7 threads";
       },
       "the clock", "7 threads", "15 threads"},
      {kOnGpu,
       [](Manifest& m) {
         kOnGpu(m);
         m.machine.cpu_model = "B CPU";
       },
       "the machine", "B CPU, 2 cores, NVIDIA H200", "A CPU, 2 cores, NVIDIA H200"},
      {kOnGpu,
       [](Manifest& m) {
         kOnGpu(m);
         m.machine.device = "NVIDIA H100";
       },
       "the machine", "A CPU, 2 cores, NVIDIA H100", "A CPU, 2 cores, NVIDIA H200"},
  };
  for (const Case& c : cases) {
    EXPECT_THAT(refusal(c.baseline, c.run), AllOf(HasSubstr("/run' cannot be judged by '"), HasSubstr(c.field),
                                                  HasSubstr(std::string(c.run_value) + "' in the run and"),
                                                  HasSubstr(std::string(c.baseline_value) + "' in the baseline")));
  }
}

TEST(GateComparable, AnyMachineIsForMeasuredTimes) {
  const Edit other = [](Manifest& m) {
    kMeasured(m);
    m.clock = "measured on B CPU, 1 threads";
    m.machine.cpu_model = "B CPU";
  };
  EXPECT_EQ(refusal(kMeasured, other, true), "");
  EXPECT_EQ(refusal(kOnGpu, other, true), "");
  EXPECT_THAT(refusal(kAsItIs, other, true), HasSubstr("the clock"));
}

TEST(GateComparable, BudgetsOfMethodsThatOneRunLacksDoNotMatter) {
  EXPECT_EQ(refusal([](Manifest& m) { m.protocol_id = "ruler/embedded-v4+budget:a=tokens,hybrid=share"; },
                    [](Manifest& m) { m.protocol_id = "ruler/embedded-v4+budget:hybrid=share"; }),
            "");
}

TEST(GateComparable, OnlyFinishedRunsOfCompare) {
  EXPECT_THAT(refusal(kAsItIs, [](Manifest& m) { m.finished_utc.clear(); }),
              AllOf(HasSubstr("/run' is not finished: it has 8 of 8 samples and no 'finished_utc'"),
                    HasSubstr("--resume --out")));
  EXPECT_THAT(refusal([](Manifest& m) { m.benchmark = kPerplexity; }, kAsItIs),
              HasSubstr("/baseline' is a perplexity run"));
  const TemporaryFolder root;
  const RunFolder whole = write_gate_run(root / "baseline"), cut = write_gate_run(root / "run");
  const std::string lines = read_bytes(root / "run" / "samples.jsonl");
  write_bytes(root / "run" / "samples.jsonl", lines.substr(lines.find('\n') + 1));
  EXPECT_THAT([&] { check_comparable(whole, cut, false); },
              ::testing::ThrowsMessage<InputError>(HasSubstr("it has 479 of 480 samples.")));
}

TEST(GateComparable, WhatMayBeJudgedIsNoted) {
  Manifest a = gate_manifest(), b = a;
  EXPECT_THAT(differences_to_note(a, b), IsEmpty());
  a.precision = "f32";
  b.prefill_chunk = 256;
  EXPECT_THAT(differences_to_note(a, b), ElementsAre("--precision is f32 in the baseline and bf16 in the run.",
                                                     "--prefill-chunk is 512 in the baseline and 256 in the run."));
  b = a;
  b.isa = "avx512";
  EXPECT_THAT(differences_to_note(a, b), ElementsAre(HasSubstr("avx2 in the baseline and avx512 in the run")));
  b = a;
  a.openblas = "0.3.21 Haswell";
  EXPECT_THAT(differences_to_note(a, b), IsEmpty());  // the run has no method that uses it
  b.openblas = "0.3.21 Cooperlake";
  EXPECT_THAT(differences_to_note(a, b),
              ElementsAre(HasSubstr("OpenBLAS 0.3.21 Haswell in the baseline and 0.3.21 Cooperlake in the run")));
}

TEST(GateComparable, WhatWasComputedCountsNotHowItWasAskedFor) {
  Manifest a = gate_manifest(), b = a;  // bf16 and 512
  a.command += " --precision auto";
  b.command += " --precision bf16 --prefill-chunk 512";
  EXPECT_THAT(differences_to_note(a, b), IsEmpty());
  // A run of an older program says what was asked for alone.
  a.schema_version = 7;
  a.precision.clear();
  a.prefill_chunk = 0;
  EXPECT_THAT(differences_to_note(a, b),
              ElementsAre("--precision is auto in the baseline and bf16 in the run.",
                          "--prefill-chunk is not given in the baseline and 512 in the run."));
  a.command = gate_manifest().command + " --prefill-chunk 512 --precision bf16";
  b.command = gate_manifest().command + " --precision auto";
  EXPECT_THAT(differences_to_note(a, b), IsEmpty());
  a.command = b.command;
  EXPECT_THAT(differences_to_note(a, b), IsEmpty());
  EXPECT_THAT(differences_to_note(b, a), IsEmpty());
  b.command += " --prefill-chunk 256";
  b.prefill_chunk = 256;
  EXPECT_THAT(differences_to_note(a, b),
              ElementsAre("--prefill-chunk is not given in the baseline and 256 in the run."));
}

}  // namespace
}  // namespace tandem::eval
