// Commands with --device cuda as a user runs them, on an emulated GPU: the same answers as without it, and reports that
// name the device. What kernels and methods do there is tested where they are; no time here is a GPU's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>

#include "tests/cli/program.h"
#include "tests/cli/program_fixture.h"

namespace tandem::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Emulated memory is written when it is taken: little of it.
constexpr const char* kSmall = " --model tiny --device-kv 64M --host-kv 64M --precision f32";

class OnEmulatedGpu : public ProgramTest {};

TEST_F(OnEmulatedGpu, InfoNamesTheDevice) {
  const cli::Outcome info = cli::run("info");
  EXPECT_EQ(info.code, 0);
  EXPECT_THAT(info.text, HasSubstr("GPU            emulated, 1 GiB, compute capability 8.0"));
}

TEST_F(OnEmulatedGpu, GenerateSaysWhatTheCpuSays) {
  const std::string command =
      std::string("generate --prompt 'The special number for apple is 12.' --max-new 6") + kSmall;
  const cli::Outcome there = cli::run(command + " --device cuda --method full-host", cli::kOnlyOutput);
  ASSERT_EQ(there.code, 0) << there.text;
  EXPECT_EQ(there.text, cli::run(command + " --device emu --method full-host", cli::kOnlyOutput).text);
}

TEST_F(OnEmulatedGpu, CompareGivesTheTokensOfTheSimulatedDevice) {
  const std::string command = std::string(
                                  "compare --methods full,quest:budget=64,hgca --tasks niah_single_1 --lengths "
                                  "128 --samples 1 --quiet --no-plot") +
                              kSmall;
  const cli::Outcome there = cli::run(command + " --device cuda --out " + folder("gpu"));
  ASSERT_EQ(there.code, 0) << there.text;
  EXPECT_THAT(there.text, AllOf(HasSubstr("measured on emulated"), HasSubstr("quest:budget=64")));
  const cli::Outcome here = cli::run(command + " --device sim --out " + folder("cpu"));
  ASSERT_EQ(here.code, 0) << here.text;
  EXPECT_EQ(bytes("gpu", "samples.jsonl"), bytes("cpu", "samples.jsonl"));
}

TEST_F(OnEmulatedGpu, BenchTimesDecodePrefillAndKernels) {
  const cli::Outcome decode = cli::run(
      "bench decode --quiet --context 64 --steps 2 --rounds 1 --method full-offload "
      "--device cuda --out " +
      folder("decode.json") + kSmall);
  ASSERT_EQ(decode.code, 0) << decode.text;
  EXPECT_THAT(decode.text, AllOf(HasSubstr("measured on emulated"), HasSubstr("device attention")));
  EXPECT_THAT(read_bytes(folder("decode.json")), HasSubstr("\"round_ms\""));

  const cli::Outcome prefill =
      cli::run(std::string("bench prefill --quiet --tokens 32 --rounds 1 --device cuda") + kSmall);
  ASSERT_EQ(prefill.code, 0) << prefill.text;
  EXPECT_THAT(prefill.text, AllOf(HasSubstr("32 tokens"), HasSubstr("prefill attention")));

  const cli::Outcome kernels = cli::run("bench kernels --device cuda --kernel list_pages --check --quiet");
  ASSERT_EQ(kernels.code, 0) << kernels.text;
  EXPECT_THAT(kernels.text, HasSubstr("right"));
}

TEST_F(OnEmulatedGpu, APeerThatTheGpuLacksIsASentence) {
  const cli::Outcome outcome =
      cli::run(std::string("generate --prompt a --max-new 2 --device cuda --method asyncspade:place=peer") + kSmall);
  EXPECT_EQ(outcome.code, 2) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr("peer"));
}

}  // namespace
}  // namespace tandem::testing
