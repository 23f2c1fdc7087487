// tandem gate as CI meets it: two runs of one command, one with a worse option, and runs that do not belong together.
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "engine/common/json.h"
#include "tests/cli/program.h"
#include "tests/cli/program_fixture.h"

namespace tandem::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class GateProgram : public ProgramTest {
 protected:
  void compare(const char* name, const std::string& options) const {
    const cli::Outcome made =
        cli::run("compare --no-plot --quiet --tasks niah_single_1 --lengths 256 --out " + folder(name) + " " + options);
    ASSERT_EQ(made.code, 0) << made.text;
  }
  std::string gate(const char* baseline, const char* run) const {
    return "gate --baseline " + folder(baseline) + " --run " + folder(run) + " ";
  }
};

TEST_F(GateProgram, TheSameCommandPassesAndASmallerBudgetFails) {
  compare("a", "--samples 20 --methods full,quest:budget=240");
  compare("b", "--samples 20 --methods full,quest:budget=240");
  compare("c", "--samples 20 --methods full,quest:budget=16");
  const cli::Outcome same = cli::run(gate("a", "b") + "--same-tokens --latency-margin 0 --accuracy-margin 20");
  EXPECT_EQ(same.code, 0) << same.text;
  EXPECT_THAT(same.text, AllOf(HasSubstr("+0.0 ["), HasSubstr("Passed: no method loses more than 20 points"),
                               HasSubstr("simulated for"), HasSubstr("step ms, predicted:"), Not(HasSubstr("FAILED")),
                               Not(HasSubstr("Note"))));
  const cli::Outcome few = cli::run(gate("a", "b") + "--strict");
  EXPECT_EQ(few.code, 0) << "20 samples alone could not tell";
  EXPECT_THAT(few.text, HasSubstr("all samples have the baseline's tokens"));

  const std::string files = "--out " + folder("gate.json") + " --out " + folder("gate.xml");
  const cli::Outcome worse = cli::run(gate("a", "c") + files, cli::kOnlyOutput);
  EXPECT_EQ(worse.code, 1) << worse.text;
  const cli::Outcome json = cli::run(gate("a", "c") + "--json", cli::kOnlyOutput);
  EXPECT_EQ(json.code, 1);
  EXPECT_EQ(json.text, read_bytes(folder("gate.json")));
  EXPECT_EQ(parse_json(json.text, "JSON").at("verdict"), "failed");
  EXPECT_THAT(worse.text, AllOf(HasSubstr("FAILED: quest:budget=240: accuracy fell by "), HasSubstr("Failed: the run"),
                                HasSubstr("budget is 240 in the baseline and 16 in the run")));
  EXPECT_THAT(read_bytes(folder("gate.json")), HasSubstr("\"verdict\": \"failed\""));
  EXPECT_THAT(read_bytes(folder("gate.xml")), HasSubstr("<failure message=\"quest:budget=240: accuracy fell by "));
  EXPECT_THAT(cli::run(gate("a", "c"), cli::kOnlyErrors).text, HasSubstr("is not as good as"));
  const cli::Outcome back = cli::run(gate("c", "a"));
  EXPECT_EQ(back.code, 1) << back.text;
  EXPECT_THAT(back.text, AllOf(HasSubstr("predicted step at llama-3.1-8b, 12 x 32K, h100"), HasSubstr("rose by +")));
  EXPECT_THAT(cli::run(gate("c", "a") + "--as none").text, Not(HasSubstr("predicted step at")));
  EXPECT_EQ(cli::run(gate("a", "c") + "--methods full --out " + folder("gate.md")).code, 0);
  EXPECT_THAT(read_bytes(folder("gate.md")), AllOf(StartsWith("# Gate\n"), HasSubstr("| full | ")));
  EXPECT_THAT(cli::run(gate("a", "b") + "--out " + folder("gate.md")).text, HasSubstr("--force replaces it"));
}

TEST_F(GateProgram, RefusesWhatCannotBeCompared) {
  compare("a", "--samples 1 --methods full");
  compare("seed", "--samples 1 --methods full --seed 7");
  compare("hw", "--samples 1 --methods full --hw h200");
  const auto refused = [&](const std::string& command, const char* says) {
    const cli::Outcome outcome = cli::run(command, cli::kOnlyErrors);
    EXPECT_EQ(outcome.code, 2) << command;
    EXPECT_THAT(outcome.text, HasSubstr(says)) << command;
  };
  refused(gate("a", "seed"), "the seed is '7' in the run and '42' in the baseline");
  refused(gate("a", "hw"), "the hardware profile is 'h200 (");
  refused(gate("a", "none"), "There is no folder");
  std::filesystem::copy(folder("a"), folder("b"));
  refused(gate("a", "a"), "--baseline and --run are the same folder");
  std::filesystem::create_directory_symlink(folder("a"), folder("link"));
  refused(gate("a", "link"), "the same folder");
  refused(gate("a", "b") + "--methods fulll", "Did you mean 'full'?");
  refused(gate("a", "b") + "--noise " + folder("a"), "--noise is for times that a real clock took");
  refused(gate("a", "b") + "--as llama-3.1-9b", "llama-3.1-9b");
  refused(gate("a", "b") + "--as none --batch 2", "--as none predicts nothing");
  refused(gate("a", "b") + "--batch 0", "--batch is 0");
  refused(gate("a", "a") + "--alpha 2", "--alpha is 2");
  refused(gate("a", "a") + "--alpha ''", "--alpha is ''");
  refused(gate("a", "a") + "--alpha nan", "--alpha is 'nan'");
  refused(gate("a", "a") + "--latency-margin 5%", "--latency-margin is '5%': give a number, for example 0.05.");
  refused(gate("a", "a") + "--latency-margin -1", "--latency-margin is -1");
  refused("gate --baseline " + folder("a"), "tandem gate needs --run");
}

}  // namespace
}  // namespace tandem::testing
