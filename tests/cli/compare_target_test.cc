// `tandem compare --as`: the steps at another shape, from the workload of the run, and their plot.
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>

#include "engine/common/json.h"
#include "methods/registry.h"
#include "tests/cli/program.h"
#include "tests/cli/program_fixture.h"

namespace tandem::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
namespace fs = std::filesystem;

class CompareTarget : public ProgramTest {};

TEST_F(CompareTarget, AWorkloadIsRecordedOnPromptsThatSaySomething) {
  const cli::Outcome tiny = cli::run(
      "compare --no-plot --quiet --methods full --tasks niah_single_1 --lengths 160 --samples 1 --as llama-3.2-1b "
      "--context 1K --out " +
      folder("a"));
  EXPECT_EQ(tiny.code, 2);
  EXPECT_THAT(tiny.text, AllOf(HasSubstr("niah_single_1 at length 160 is too short"), HasSubstr("--workload")));
  EXPECT_FALSE(fs::exists(folder("a"))) << "after the run it would have been too late";
}

TEST_F(CompareTarget, PredictsAtAnotherShape) {
  const std::string target =
      "compare --no-plot --quiet --tasks niah_single_1 --lengths 512 --samples 2 --batch 2 --as llama-3.2-1b "
      "--context 1K --out ";
  const cli::Outcome first = cli::run(target + folder("a"));
  ASSERT_EQ(first.code, 0) << first.text;
  EXPECT_THAT(bytes("a", "report.txt"),
              AllOf(HasSubstr("At a target shape"), HasSubstr("simulated: llama-3.2-1b, batch 2 x 1K"),
                    HasSubstr("recorded on embedded")));
  EXPECT_THAT(bytes("a", "report.md"), HasSubstr("## At a target shape"));
  EXPECT_THAT(cli::run("report " + folder("a")).text,
              AllOf(HasSubstr("At a target shape"), HasSubstr("simulated: llama-3.2-1b, batch 2 x 1K")));
  EXPECT_THAT(cli::run("report --format latex " + folder("a")).text,
              AllOf(HasSubstr("% At a target shape\n"), HasSubstr("simulated: llama-3.2-1b, batch 2 x 1K")));
  const std::vector<std::string> specs = default_prediction(kShortContext);
  const Json rows = parse_json(bytes("a", "target.json"), "JSON").at("methods");
  ASSERT_EQ(rows.size(), specs.size());
  for (std::size_t i = 0; i < specs.size(); ++i) {
    EXPECT_EQ(rows[i].at("method"), specs[i]);
    EXPECT_FALSE(rows[i].contains("refused")) << rows[i];
  }
  EXPECT_THAT(bytes("a", "manifest.json"), HasSubstr("--as llama-3.2-1b --context 1K --workload recorded"));
  const auto few = [&](const char* name, const char* more) {
    const cli::Outcome outcome = cli::run(target + folder(name) + " --methods full,scoutattention,hgca" + more);
    EXPECT_EQ(outcome.code, 0) << outcome.text;
    return bytes(name, "target.json");
  };
  const std::string recorded = few("b", "");
  EXPECT_EQ(few("c", " --threads 1"), recorded);
  EXPECT_NE(few("d", " --workload published"), recorded);
}

TEST_F(CompareTarget, PlotsTheStepsOfARunAndOfItsTargetShape) {
  const std::string run = "compare --quiet --methods full,hgca --tasks niah_single_1 --lengths 256 --samples 1 --out ";
  const cli::Outcome first = cli::run(run + folder("a") + " --as llama-3.2-1b --context 1K");
  ASSERT_EQ(first.code, 0) << first.text;
  if (!fs::exists(folder("a") + "/plot.svg")) {
    EXPECT_THAT(first.text, HasSubstr("The plot was not drawn"));
    GTEST_SKIP() << "matplotlib is not here";
  }
  EXPECT_THAT(bytes("a", "plot.svg"),
              AllOf(HasSubstr("per decode step"), HasSubstr("llama-3.2-1b, batch 1 \u00d7 1K")));
  ASSERT_EQ(cli::run(run + folder("b")).code, 0);
  EXPECT_THAT(bytes("b", "plot.svg"), AllOf(HasSubstr("per decode step"), Not(HasSubstr("llama-3.2-1b"))));
}

// Budgets for the embedded tasks' short prompts are none for 32K tokens.
TEST_F(CompareTarget, ALongTargetHasThePublishedBudgetsAndTheChunkThatIsGiven) {
  const std::string run =
      "compare --no-plot --quiet --tasks niah_single_1 --lengths 512 --samples 1 --as llama-3.2-1b --workload "
      "published --context 3K --out ";
  const cli::Outcome first = cli::run(run + folder("a"));
  ASSERT_EQ(first.code, 0) << first.text;
  const Json target = parse_json(bytes("a", "target.json"), "JSON");
  std::map<std::string, std::string> other;
  for (const Json& row : target.at("methods")) {
    const std::string spec = row.at("method");
    EXPECT_EQ(spec, spec == "fluxion:heads=published" ? spec : parse_method_spec(spec).name);
    EXPECT_FALSE(row.contains("refused")) << row;
    if (row.contains("compared_as")) other[spec] = row.at("compared_as");
  }
  EXPECT_EQ(other, (std::map<std::string, std::string>{{"quest", "quest:budget=512"},
                                                       {"tova", "tova:budget=512"},
                                                       {"scoutattention", "scoutattention:budget=512"},
                                                       {"freekv", "freekv:budget=512"},
                                                       {"hisparse", "hisparse:budget=512"},
                                                       {"fluxion:heads=published", "fluxion:heads=embedded"},
                                                       {"asyncspade", "asyncspade:budget=512"}}));
  EXPECT_THAT(bytes("a", "report.md"),
              AllOf(HasSubstr("quest (above: quest:budget=512)"), HasSubstr("| fluxion:heads=published |"),
                    HasSubstr("fluxion:heads=published (above: fluxion:heads=embedded)")));
  EXPECT_EQ(target.at("prefill_chunk"), 2048);
  EXPECT_THAT(bytes("a", "manifest.json"), ::testing::Not(HasSubstr("--prefill-chunk")))
      << "it would be the prediction's when the command is typed again";
  const cli::Outcome chunked = cli::run(run + folder("b") + " --methods full --prefill-chunk 256");
  ASSERT_EQ(chunked.code, 0) << chunked.text;
  const Json in_chunks = parse_json(bytes("b", "target.json"), "JSON");
  EXPECT_EQ(in_chunks.at("prefill_chunk"), 256);
  EXPECT_NE(in_chunks.at("methods")[0].at("prefill_ms"), target.at("methods")[0].at("prefill_ms"));
  EXPECT_THAT(bytes("b", "manifest.json"), HasSubstr(" --prefill-chunk 256"));
}

TEST_F(CompareTarget, AMethodThatTheTargetShapeRefusesIsARow) {
  const cli::Outcome done = cli::run(
      "compare --no-plot --quiet --methods full,fluxion:heads=embedded --tasks niah_single_1 --lengths 512 --samples 1 "
      "--as llama-3.2-1b --context 1K --workload published --out " +
      folder("a"));
  ASSERT_EQ(done.code, 0) << done.text;
  const Json rows = parse_json(bytes("a", "target.json"), "JSON").at("methods");
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_FALSE(rows[0].contains("refused"));
  EXPECT_THAT(rows[1].at("refused").get<std::string>(), HasSubstr("heads=fixed"));
}

}  // namespace
}  // namespace tandem::testing
