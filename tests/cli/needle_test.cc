// tandem eval needle as a user meets it.
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "engine/common/json.h"
#include "tests/cli/background.h"
#include "tests/cli/program.h"
#include "tests/cli/run_folders.h"

namespace tandem::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

class NeedleProgram : public RunFolders {
 protected:
  std::string command(const char* out, int samples = 2) const {
    return "eval needle --quiet --no-plot --model tiny --methods full,streaming:sinks=16,window=32 --lengths 256,400 "
           "--depths 0,50,100 --samples " +
           std::to_string(samples) + " --out " + folder(out);
  }
};

TEST_F(NeedleProgram, ShowsMapsAndKeepsARun) {
  const cli::Outcome done = cli::run(command("a"));
  ASSERT_EQ(done.code, 0) << done.text;
  EXPECT_THAT(bytes("a", "report.txt"), AllOf(HasSubstr("Recall by depth and length, %"), HasSubstr("Cells below full"),
                                              HasSubstr("simulated for A100-80G")));
  EXPECT_THAT(bytes("a", "report.md"), HasSubstr("# A needle by depth and length on tiny"));
  const auto manifest = parse_json(bytes("a", "manifest.json"), "JSON");
  EXPECT_EQ(manifest.at("benchmark"), "needle");
  EXPECT_THAT(manifest.at("command").get<std::string>(), HasSubstr("--depths 0,50,100 --samples 2 --seed 42"));
  ASSERT_EQ(cli::run(command("b") + " --threads 1").code, 0);
  EXPECT_EQ(bytes("a", "samples.jsonl"), bytes("b", "samples.jsonl"));
  EXPECT_EQ(bytes("a", "timings.jsonl"), bytes("b", "timings.jsonl"));
  EXPECT_EQ(cli::run("report " + folder("a") + " " + folder("b")).code, 0);
  EXPECT_EQ(cli::run("gate --baseline " + folder("a") + " --run " + folder("b")).code, 0);
}

TEST_F(NeedleProgram, ResumesWithTheSameListsInAnotherSpelling) {
  const auto with = [&](const char* lists) {
    return "eval needle --quiet --no-plot --model tiny --methods full --samples 1 " + std::string(lists) + " --out " +
           folder("a");
  };
  ASSERT_EQ(cli::run(with("--lengths 512,1024 --depths 05")).code, 0);
  const cli::Outcome resumed = cli::run(with("--lengths 512,1K --depths 5 --resume"));
  EXPECT_EQ(resumed.code, 0) << resumed.text;
}

TEST_F(NeedleProgram, HidesANeedleInEssays) {
  std::ofstream(folder("essays.txt")) << "One day it rained. The barn was red. Nobody came, and nothing happened.";
  const cli::Outcome done = cli::run(
      "eval needle --quiet --no-plot --model tiny --methods full --samples 1 --lengths 512 --depths 50 --task "
      "niah_multikey_1 --ruler-essays " +
      folder("essays.txt") + " --out " + folder("a"));
  EXPECT_EQ(done.code, 0) << done.text;
}

TEST_F(NeedleProgram, AnInterruptedRunEndsWithTheSameBytes) {
  constexpr int kSamples = 24;  // it has to last until the signal comes
  ASSERT_EQ(cli::run(command("whole", kSamples)).code, 0);
  const pid_t program = cli::start(command("part", kSamples));
  cli::wait_for_lines(folder("part") + "/samples.jsonl", 1);  // before its first sample a run leaves nothing
  kill(program, SIGINT);
  const int code = cli::exit_code_of(program);
  if (code == 0) GTEST_SKIP() << "the run was over before the signal came";
  const cli::Outcome resumed = cli::run(command("part", kSamples) + " --resume");
  ASSERT_EQ(resumed.code, 0) << resumed.text;
  for (const char* name : {"samples.jsonl", "timings.jsonl"}) EXPECT_EQ(bytes("part", name), bytes("whole", name));
}

TEST_F(NeedleProgram, PlotsAMapForEachMethod) {
  const cli::Outcome done = cli::run(
      "eval needle --quiet --model tiny --methods full,streaming --lengths 256 --depths 0,100 --samples 1 --out " +
      folder("a"));
  ASSERT_EQ(done.code, 0) << done.text;
  if (!fs::exists(folder("a") + "/plot.svg")) {
    EXPECT_THAT(done.text, HasSubstr("The plot was not drawn"));
    GTEST_SKIP() << "matplotlib is not here";
  }
  EXPECT_THAT(bytes("a", "plot.svg"), AllOf(HasSubstr("depth of the needle"), HasSubstr("streaming")));
  EXPECT_THAT(bytes("a", "report.md"), HasSubstr("](plot.png)"));
}

TEST_F(NeedleProgram, SaysWhatIsWrongAndLeavesNoFolder) {
  const std::pair<const char*, const char*> cases[] = {
      {"--depths 0,101", "--depths: '101' is not a whole number from 0 to 100"},
      {"--depths 0,0", "'0' is given twice"},
      {"--depths ,", "nothing between two commas"},
      {"--task niah_singel_2", "Did you mean 'niah_single_2'?"},
      {"--task vt", "no task with one needle"},
      {"--lengths 64K", "positions"},
      {"--lengths 20", "too short"},
      {"--samples 0", "--samples is 0"},
      {"--batch 0", "--batch is 0"},
      {"--ruler-essays /no/such/file", "cannot be read"},
      {"--task niah_multikey_2 --ruler-essays /no/such/file", "has no place in niah_multikey_2"},
      {"--methods full,ques", "Did you mean 'quest'?"},
      {"--model synthetic:qwen3-0.6b", "random weights"},
  };
  for (const auto& [arguments, says] : cases) {
    const cli::Outcome outcome =
        cli::run("eval needle --quiet --out " + folder("none") + " " + arguments, cli::kOnlyErrors);
    EXPECT_EQ(outcome.code, 2) << arguments << "\n" << outcome.text;
    EXPECT_THAT(outcome.text, HasSubstr(says)) << arguments;
    EXPECT_FALSE(fs::exists(folder("none"))) << arguments;
  }
}

}  // namespace
}  // namespace tandem::testing
