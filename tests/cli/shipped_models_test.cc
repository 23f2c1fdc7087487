// What the shipped models answer with full attention: far below what models/README.md measured on more samples, and far
// above what a broken engine gives.
#include <gtest/gtest.h>
#include <map>

#include "engine/common/json.h"
#include "tests/cli/program.h"
#include "tests/engine/model/model_folder.h"

namespace tandem::testing {
namespace {

struct Answers {
  const char* model;
  const char* length;
  std::map<std::string, double> least;  // accuracy by task
};
void PrintTo(const Answers& a, std::ostream* out) {
  *out << a.model;
}

class ShippedModel : public ::testing::TestWithParam<Answers> {};
INSTANTIATE_TEST_SUITE_P(Models, ShippedModel,
                         ::testing::Values(Answers{"seed", "512", {{"niah_single_1", 0.9}, {"niah_multikey_1", 0.6}}},
                                           Answers{"deep",
                                                   "512",
                                                   {{"niah_single_2", 0.9},
                                                    {"niah_single_3", 0.5},
                                                    {"niah_multikey_2", 0.8},
                                                    {"niah_multikey_3", 0.5},
                                                    {"qa_2", 0.4}}},
                                           Answers{"tiny", "256", {{"niah_single_1", 0.8}}}),
                         [](const auto& answers) { return std::string(answers.param.model); });

TEST_P(ShippedModel, AnswersWhatItWasTrainedFor) {
  const TemporaryFolder folder;
  const std::string run = (folder.path() / "run").string();
  std::string tasks;
  for (const auto& [task, least] : GetParam().least) tasks += (tasks.empty() ? "" : ",") + task;
  const cli::Outcome outcome =
      cli::run(std::string("compare --no-plot --quiet --methods full --samples 12 --model ") + GetParam().model +
               " --lengths " + GetParam().length + " --tasks " + tasks + " --out " + run);
  ASSERT_EQ(outcome.code, 0) << outcome.text;
  const Json summary = parse_json(read_bytes(folder.path() / "run/summary.json"), "JSON");
  for (const Json& cell : summary["methods"][0]["cells"]) {
    const std::string task = cell["task"];
    EXPECT_GE(cell["accuracy"].get<double>(), GetParam().least.at(task)) << task;
  }
  EXPECT_EQ(summary["methods"][0]["cells"].size(), GetParam().least.size());
}

}  // namespace
}  // namespace tandem::testing
