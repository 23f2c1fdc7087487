// tandem simulate as a user meets it.
#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/common/json.h"
#include "engine/device/profile.h"
#include "tests/cli/background.h"
#include "tests/cli/program.h"
#include "tests/cli/program_fixture.h"

namespace tandem::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
namespace fs = std::filesystem;

constexpr const char* kSmall =
    "simulate --quiet --no-plot --as llama-3.2-1b --steps 4 --methods full,quest:budget=256 ";

class Simulate : public ProgramTest {
 protected:
  std::string small(const std::string& arguments, const char* out) const {
    return kSmall + arguments + " --out " + folder(out);
  }
};

TEST_F(Simulate, PrintsTablesAndWritesThem) {
  const cli::Outcome done = cli::run(small("--context 512,1K --batch 2,max --most 3 --hw h200", "a"));
  ASSERT_EQ(done.code, 0) << done.text;
  EXPECT_THAT(done.text,
              AllOf(HasSubstr("Tokens/s"), HasSubstr("Step, ms (TPOT)"), HasSubstr("Idle: "), HasSubstr("Fastest"),
                    HasSubstr("simulated: llama-3.2-1b, batch 2, H200 141 GB, PCIe 5, 16 vCPU"),
                    HasSubstr("as many as fit"), HasSubstr(" (3+)")));
  const Json sweep = parse_json(bytes("a", "sweep.json"), "JSON");
  EXPECT_EQ(sweep.at("complete"), true);
  EXPECT_EQ(sweep.at("points").size(), 8u);
  EXPECT_THAT(sweep.at("command").get<std::string>(),
              HasSubstr("--context 512,1K --batch 2,max --level machine --workload published"));
  EXPECT_THAT(bytes("a", "report.md"),
              AllOf(HasSubstr("# llama-3.2-1b"), HasSubstr("## All figures"), HasSubstr("Made by tandem")));
  EXPECT_THAT(bytes("a", "sweep.csv"), HasSubstr("llama-3.2-1b,h200,simulated,max,3,1024,full,1,"));
  EXPECT_FALSE(fs::exists(folder("a") + "/plot.png"));
  const cli::Outcome json =
      cli::run(small("--context 512,1K --batch 2,max --most 3 --hw h200 --resume --json", "a"), cli::kOnlyOutput);
  EXPECT_EQ(json.code, 0);
  EXPECT_EQ(json.text, bytes("a", "sweep.json"));
}

TEST_F(Simulate, BudgetsAreSetToEqualBytes) {
  const std::string command = "--context 2K --batch 1,2 --equal touched-bytes=0.2,0.4 --methods full,quest,streaming";
  const std::string start = "simulate --quiet --no-plot --as llama-3.2-1b --steps 4 ";
  const cli::Outcome done = cli::run(start + command + " --out " + folder("a"));
  ASSERT_EQ(done.code, 0) << done.text;
  EXPECT_THAT(done.text, AllOf(HasSubstr("At equal bytes touched"), HasSubstr("Tokens/s")));
  const Json sweep = parse_json(bytes("a", "sweep.json"), "JSON");
  EXPECT_THAT(sweep.at("command").get<std::string>(),
              HasSubstr("--methods full,quest,streaming --equal touched-bytes=0.2,0.4"));
  ASSERT_EQ(sweep.at("points").size(), 10u) << "full, and two methods at two shares, at two batches";
  double full = 0;
  for (const Json& point : sweep.at("points")) {
    if (point.at("method") == "full") full = point.at("touched_bytes");
    if (point.at("method") == "full") continue;
    const double share = double(point.at("touched_bytes")) / full;
    EXPECT_LT(std::min(std::abs(share / 0.2 - 1), std::abs(share / 0.4 - 1)), 0.05) << point;
  }
  const std::string text = bytes("a", "sweep.json"), report = bytes("a", "report.md");
  EXPECT_THAT(report, HasSubstr("## At equal bytes touched"));
  for (const bool kept : {true, false}) {
    if (!kept) fs::remove(folder("a") + "/equal.json");
    ASSERT_EQ(cli::run(start + command + " --resume --out " + folder("a")).code, 0);
    EXPECT_EQ(bytes("a", "sweep.json"), text);
    EXPECT_EQ(bytes("a", "report.md"), report);
    EXPECT_TRUE(fs::exists(folder("a") + "/equal.json"));
  }
  const cli::Outcome two = cli::run(start + "--context 1K,2K --equal touched-bytes=0.2");
  EXPECT_EQ(two.code, 2);
  EXPECT_THAT(two.text, HasSubstr("--context has 2"));
}

TEST_F(Simulate, FewerBitsAndHostMemoryAreSettingsOfASweep) {
  const std::string settings = "--context 512 --batch 1 --hw rtx-4090 --host-memory 64 --weight-bits 8 ";
  const cli::Outcome done = cli::run(small(settings, "a"));
  ASSERT_EQ(done.code, 0) << done.text;
  EXPECT_THAT(done.text, AllOf(HasSubstr("with 64 GB of host memory"), HasSubstr("is not measured here")));
  const Json sweep = parse_json(bytes("a", "sweep.json"), "JSON");
  EXPECT_EQ(sweep.at("weight_bits"), 8);
  EXPECT_FALSE(sweep.contains("kv_bits"));
  EXPECT_EQ(sweep.at("hardware").at("rtx-4090").at("host").at("memory_gb"), 64);
  EXPECT_THAT(sweep.at("command").get<std::string>(), HasSubstr(" --host-memory 64 --weight-bits 8"));
  const cli::Outcome mixed =
      cli::run(small("--context 512 --batch 1 --hw rtx-4090 --host-memory 64 --resume", "a"), cli::kOnlyErrors);
  EXPECT_EQ(mixed.code, 2);
  EXPECT_THAT(mixed.text, HasSubstr("its weight_bits is 8, and this command's is 16"));
  EXPECT_EQ(cli::run(small(settings + "--resume", "a")).code, 0);
}

TEST_F(Simulate, GoesOnWhereItStoppedAndAddsToASweep) {
  ASSERT_EQ(cli::run(small("--context 512,1K --batch 1", "whole")).code, 0);
  ASSERT_EQ(cli::run(small("--context 512 --batch 1", "part")).code, 0);
  const cli::Outcome less = cli::run(small("--context 1K --batch 1 --resume", "part"));
  EXPECT_EQ(less.code, 2);
  EXPECT_THAT(less.text, HasSubstr("which this command does not ask for"));
  const cli::Outcome more = cli::run(small("--context 512,1K --batch 1 --resume", "part"));
  ASSERT_EQ(more.code, 0) << more.text;
  for (const char* file : {"sweep.json", "sweep.csv", "report.md"})
    EXPECT_EQ(bytes("part", file), bytes("whole", file));
  const cli::Outcome again = cli::run(small("--context 512,1K --batch 1", "part"));
  EXPECT_EQ(again.code, 2);
  EXPECT_THAT(again.text, AllOf(HasSubstr("has a sweep already"), HasSubstr("--resume"), HasSubstr("--force")));
  EXPECT_EQ(cli::run(small("--context 512 --batch 2 --force", "part")).code, 0);
  EXPECT_THAT(bytes("part", "sweep.json"), Not(HasSubstr("\"context\": 1024")));
}

TEST_F(Simulate, ASignalKeepsWhatIsFinished) {
  // The first point takes a moment, the next seconds.
  const std::string command =
      "simulate --quiet --no-plot --as llama-3.1-8b --threads 1 --methods streaming,quest --context 256,16K --batch 8 "
      "--out " +
      folder("a");
  const pid_t program = cli::start(command, folder("said"));
  cli::wait_until_it_handles_interrupts(program);
  cli::wait_for_file(folder("a") + "/sweep.json");
  kill(program, SIGINT);
  EXPECT_EQ(cli::exit_code_of(program), 3);
  EXPECT_THAT(bytes(".", "said"), AllOf(HasSubstr("points are kept"), HasSubstr("--resume")));
  const Json sweep = parse_json(bytes("a", "sweep.json"), "JSON");
  EXPECT_EQ(sweep.at("complete"), false);
  EXPECT_GE(sweep.at("points").size(), 1u);
  EXPECT_FALSE(fs::exists(folder("a") + "/report.md"));
}

TEST_F(Simulate, GoesOnWithAsManyAsFit) {
  const std::string most = " --batch max --most 3 ";
  ASSERT_EQ(cli::run(small("--context 512,1K" + most, "whole")).code, 0);
  ASSERT_EQ(cli::run(small("--context 512" + most, "part")).code, 0);
  const cli::Outcome more = cli::run(small("--context 512,1K --resume" + most, "part"));
  ASSERT_EQ(more.code, 0) << more.text;
  for (const char* file : {"sweep.json", "sweep.csv"}) EXPECT_EQ(bytes("part", file), bytes("whole", file));
}

TEST_F(Simulate, WhatIsInTheFolderIsOfOneSweep) {
  ASSERT_EQ(cli::run(small("--context 512 --batch 1", "a")).code, 0);
  std::ofstream(folder("a") + "/plot.png") << "of an earlier one";
  const std::string earlier = bytes("a", "sweep.json");
  // What the terminal did not take is in the folder all the same.
  EXPECT_EQ(std::system((std::string(TANDEM_PROGRAM) + " " + small("--context 1K --batch 1 --force", "a") +
                         " > /dev/full 2> /dev/null")
                            .c_str()) >>
                8,
            3);
  EXPECT_NE(bytes("a", "sweep.json"), earlier);
  EXPECT_THAT(bytes("a", "report.md"), HasSubstr("1K"));
  EXPECT_FALSE(fs::exists(folder("a") + "/plot.png"));
}

TEST_F(Simulate, PlotsTheSweep) {
  const cli::Outcome done = cli::run(
      "simulate --quiet --as llama-3.2-1b --steps 4 --methods full,streaming --context 512,1K --batch 1 --out " +
      folder("a"));
  ASSERT_EQ(done.code, 0) << done.text;
  if (!fs::exists(folder("a") + "/plot.svg")) {
    EXPECT_THAT(done.text, HasSubstr("The plot was not drawn"));
    GTEST_SKIP() << "matplotlib is not here";
  }
  EXPECT_THAT(bytes("a", "plot.svg"),
              AllOf(HasSubstr("fluxion-a100, batch 1"), HasSubstr("streaming"), HasSubstr("tokens/s, simulated")));
  EXPECT_THAT(bytes("a", "report.md"), HasSubstr("](plot.png)"));
}

TEST_F(Simulate, DrawsAMapOfMethodsByMachines) {
  const cli::Outcome done = cli::run(
      "simulate --quiet --as llama-3.1-8b --steps 4 --methods full,full-offload,streaming --context 32K --batch 4 --hw "
      "h100,rtx-4090 --out " +
      folder("a"));
  ASSERT_EQ(done.code, 0) << done.text;
  EXPECT_THAT(bytes("a", "report.md"), HasSubstr("| method | h100 | rtx-4090 |\n"));
  if (!fs::exists(folder("a") + "/plot.svg")) GTEST_SKIP() << "matplotlib is not here";
  EXPECT_THAT(bytes("a", "plot.svg"),
              AllOf(HasSubstr("rtx-4090"), HasSubstr("full-offload"), HasSubstr("batch 4 \u00d7 32K"),
                    HasSubstr(">does not<") /* full does not fit into 24 GB */, HasSubstr(">1/16<"),
                    HasSubstr("fastest that loses nothing")));
}

TEST_F(Simulate, AMapSaysWhatMaxCameTo) {
  const cli::Outcome done = cli::run(
      "simulate --quiet --as llama-3.2-1b --steps 2 --methods full,streaming,full-offload --context 32K --batch max "
      "--most 8 --tpot 4 --hw h100,rtx-4090 --out " +
      folder("a"));
  ASSERT_EQ(done.code, 0) << done.text;
  EXPECT_THAT(bytes("a", "report.md"), AllOf(HasSubstr("too slow"), HasSubstr("(8+)"), HasSubstr("within 4 ms")));
  if (!fs::exists(folder("a") + "/plot.svg")) GTEST_SKIP() << "matplotlib is not here";
  EXPECT_THAT(
      bytes("a", "plot.svg"),
      AllOf(HasSubstr("(8+)"), HasSubstr("as many as fit within 4 ms a step (in brackets)"), HasSubstr(">too slow<")));
}

TEST_F(Simulate, AllIsEveryMachineThatShips) {
  const cli::Outcome done = cli::run(small("--context 512 --batch 1 --hw all", "a"));
  ASSERT_EQ(done.code, 0) << done.text;
  for (const std::string& name : profile_names())
    EXPECT_THAT(bytes("a", "sweep.csv"), HasSubstr("," + name + ",simulated,1,")) << name;
  // A file of one's own in the place of a shipped one.
  HardwareProfile mine = load_profile("h100");
  mine.title = "one of my own";
  write_bytes(folder("h100.json"), profile_to_json(mine));
  const cli::Outcome own = cli::run(small("--context 512 --batch 1 --hw all," + folder("h100.json"), "b"));
  EXPECT_EQ(own.code, 0) << own.text;
  EXPECT_THAT(bytes("b", "sweep.json"),
              AllOf(HasSubstr("one of my own"), ::testing::Not(HasSubstr("H100 SXM 80 GB, PCIe 5, 14 cores"))));
}

TEST_F(Simulate, SaysWhatIsWrongBeforeAnythingRuns) {
  const std::string file = folder("file");
  std::ofstream(file) << "x";
  fs::create_directories(folder("full"));
  std::ofstream(folder("full") + "/notes.txt") << "x";
  const std::pair<std::string, const char*> cases[] = {
      {"--as llama-3.1-9b", "Did you mean 'llama-3.1-8b'?"},
      {"--hw h20", "Did you mean 'h200'?"},
      {"--hw h200,h200", "'h200' is given twice"},
      {"--methods asyncspade:place=peer --context 1K", "No method could be simulated at any point"},
      {"--hw h200,", "there is nothing between two commas"},
      {"--context 4X", "'4X' is not a length"},
      {"--context 1", "at least 2 tokens"},
      {"--context 8K,8192", "given twice"},
      {"--batch 0", "'0' is not a whole number from 1 to 1024"},
      {"--batch most", "'most' is not a whole number from 1 to 1024, nor max"},
      {"--batch max,max", "'max' is given twice"},
      {"--batch 01,1", "'1' is given twice"},
      {"--methods full,full", "'full' is given twice"},
      {"--prefill-chunk 4294967295", "give 1 to 65536 tokens"},
      {"--methods full,ques", "Did you mean 'quest'?"},
      {"--methods quest:budget=x", "'budget'"},
      {"--steps 1", "--steps is 1"},
      {"--weight-bits 5", "--weight-bits is 5: give 16 (bf16), 8 or 4"},
      {"--host-memory 0.01", "--host-memory is 0.01: give 0.1 GB or more"},
      {"--most 0", "--most is 0"},
      {"--prefill-chunk 0", "--prefill-chunk is 0"},
      {"--threads 100000", "--threads is 100000"},
      {"--workload recorded", "'recorded' cannot be read; give published or a file"},
      {"--workload /etc/passwd", "not valid JSON"},
      {"--resume", "give it too"},
      {"--force", "give it too"},
      {"--out " + folder("none") + " --resume", "there is no sweep.json"},
      {"--out " + folder("none") + " --resume --force", "give one of them"},
      {"--out " + file, "is a file"},
      {"--out " + folder("full"), "files that are no sweep's"},
  };
  for (const auto& [arguments, says] : cases) {
    const cli::Outcome outcome = cli::run("simulate --quiet " + arguments, cli::kOnlyErrors);
    EXPECT_EQ(outcome.code, 2) << arguments << "\n" << outcome.text;
    EXPECT_THAT(outcome.text, HasSubstr(says)) << arguments;
    EXPECT_EQ(outcome.text.find('\n'), outcome.text.size() - 1) << outcome.text;
  }
  EXPECT_FALSE(fs::exists(folder("none")));
}

}  // namespace
}  // namespace tandem::testing
