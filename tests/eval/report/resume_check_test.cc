// Which runs go on with which command, and what is named where they do not.
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/common/error.h"
#include "eval/report/manifest_difference.h"
#include "tests/eval/report/fixtures.h"

namespace tandem::eval {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::ThrowsMessage;

Manifest run_of(const std::string& command) {
  Manifest manifest = example_manifest();
  manifest.command = command;
  return manifest;
}

TEST(ResumeCheck, RoomForKvMayBeAnother) {
  const Manifest there = run_of("tandem compare --samples 4 --device-kv 4G --host-kv '1.5 GB' --precision auto");
  check_resumable("run", there, run_of("tandem compare --samples 4 --device-kv 1G --host-kv 8G --precision auto"));
  for (const char* other : {"tandem compare --samples 4 --device-kv 4G --host-kv '1.5 GB' --precision f16",
                            "tandem compare --samples 5 --device-kv 4G --host-kv '1.5 GB' --precision auto",
                            "tandem compare --samples 4 --device-kv 4G --host-kv '1.5 GB'"})
    EXPECT_THAT([&] { check_resumable("run", there, run_of(other)); },
                ThrowsMessage<InputError>(AllOf(HasSubstr("made by another command"), HasSubstr(other))));
}

TEST(ResumeCheck, TheClockKnowsTheThreadsAndTheHost) {
  Manifest there = run_of("tandem compare --device cuda --threads 15 --samples 4");
  there.clock = "measured on NVIDIA H200, host A CPU, 15 threads";
  Manifest mine = run_of("tandem compare --device cuda --samples 4");  // all 15, or a program that did not record them
  mine.clock = there.clock;
  check_resumable("run", there, mine);
  check_resumable("run", mine, there);
  for (const char* other : {"measured on NVIDIA H200, host A CPU, 7 threads", "measured on NVIDIA H200",
                            "measured on NVIDIA H200, host B CPU, 15 threads"}) {
    mine.clock = other;
    EXPECT_THAT([&] { check_resumable("run", there, mine); },
                ThrowsMessage<InputError>(AllOf(HasSubstr(there.clock + "; here they would be " + other + ","),
                                                HasSubstr("cannot be resumed"))));
  }
}

// A program that has an option more goes on with the runs of one that had not, where it leaves the option at its
// default.
TEST(ResumeCheck, AnOptionThatIsNewHasItsDefaultInOlderRuns) {
  Manifest there = example_manifest(), mine = there;
  there.methods[1] = {"quest:budget=512", "quest", {{"budget", "512"}}, ""};
  mine.methods[1] = {"quest:budget=512", "quest", {{"budget", "512"}, {"digest", "bounds"}}, ""};
  check_resumable("run", there, mine);
  check_resumable("run", mine, there);
  mine.methods[1].options[1].second = "mean";
  EXPECT_THAT([&] { check_resumable("run", there, mine); },
              ThrowsMessage<InputError>(HasSubstr("Method 'quest:budget=512' is another one")));
}

TEST(ResumeCheck, WhatAnOlderProgramDidNotWriteIsNotKnownToDiffer) {
  Manifest there = example_manifest();
  there.schema_version = 7;
  there.precision.clear();
  there.prefill_chunk = 0;
  there.config_hash.clear();
  check_resumable("run", there, example_manifest());
  check_resumable("run", example_manifest(), there);  // as shards of two programs are merged
}

TEST(ResumeCheck, QuotedWordsAreOneWord) {
  const Manifest there = run_of("tandem eval perplexity --text 'it'\\''s --host-kv 1.txt' --new 16");
  check_resumable("run", there, there);
  EXPECT_THROW(
      check_resumable("run", there, run_of("tandem eval perplexity --text 'it'\\''s --host-kv 2.txt' --new 16")),
      InputError);
}

TEST(ResumeCheck, NamesWhatTheSameCommandNoLongerMeans) {
  const auto refused = [](const std::function<void(Manifest&)>& change) {
    Manifest there = example_manifest(), mine = there;
    there.protocol_id = "ruler/official-v2+data:d1+tok:t1+score:upstream";
    mine.protocol_id = there.protocol_id;
    change(mine);
    try {
      check_resumable("run", there, mine);
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string("goes on");
  };
  EXPECT_EQ(refused([](Manifest&) {}), "goes on");
  const std::pair<std::function<void(Manifest&)>, std::vector<const char*>> cases[] = {
      {[](Manifest& m) { m.weights_hash = "w2"; }, {"other weights", "'tiny'", "w1 there, w2 here"}},
      {[](Manifest& m) { m.config_hash = "c2"; }, {"another config.json", "'tiny'", "c1 there, c2 here"}},
      {[](Manifest& m) { m.isa = "avx512"; },
       {"instruction set avx2", "with the instruction set avx512", "TANDEM_ISA"}},
      {[](Manifest& m) { m.openblas = "0.3.21 Cooperlake"; },
       {"OpenBLAS 0.3.21 Haswell", "with OpenBLAS 0.3.21 Cooperlake", "OPENBLAS_CORETYPE"}},
      {[](Manifest& m) { m.prefill_chunk = 1024; },
       {"begun with precision bf16 and prefill chunks of 512 tokens", "would be bf16 and 1024"}},
      {[](Manifest& m) { m.precision = "f16"; }, {"here they would be f16 and 512"}},
      {[](Manifest& m) { m.protocol_id = "ruler/official-v2+data:d2+tok:t1+score:upstream"; },
       {"other data", "data: d1 there, d2 here"}},
      {[](Manifest& m) { m.protocol_id = "ruler/official-v2+data:d1+tok:t2+score:upstream"; },
       {"another protocol", "(tok: t1 there, t2 here)"}},
      {[](Manifest& m) { m.protocol_id = "ruler/official-v3+data:d1+tok:t1+score:upstream+eos:stops"; },
       {"eos: nothing there, stops here; variant: ruler/official-v2 there, ruler/official-v3 here"}}};
  for (const auto& [change, says] : cases) {
    const std::string text = refused(change);
    for (const char* part : says) EXPECT_THAT(text, HasSubstr(part));
    EXPECT_THAT(text, Not(HasSubstr("another command")));
  }
}

}  // namespace
}  // namespace tandem::eval
