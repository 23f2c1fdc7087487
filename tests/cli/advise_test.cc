// tandem advise as a user meets it.
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/common/json.h"
#include "engine/device/profile.h"
#include "tests/cli/program_fixture.h"

namespace tandem::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class Advise : public ProgramTest {};

constexpr const char* kSmall = "advise --as llama-3.2-1b --context 2K ";

Json answers_of(const std::string& arguments) {
  const cli::Outcome done = cli::run(arguments + " --json", cli::kOnlyOutput);
  EXPECT_EQ(done.code, 0) << done.text;
  return parse_json(done.text, "JSON").at("answers");
}

TEST_F(Advise, RecommendsAndSaysWhy) {
  const cli::Outcome done =
      cli::run(std::string(kSmall) + "--hw rtx-4090 --host-memory 64 --methods full,full-host,streaming");
  ASSERT_EQ(done.code, 0) << done.text;
  EXPECT_THAT(done.text, AllOf(HasSubstr("with 64 GB of host memory"), HasSubstr("recommended"), HasSubstr("runner-up"),
                               HasSubstr("full is the fastest method that fits")));
  const Json answer = answers_of(std::string(kSmall) + "--hw rtx-4090 --methods full,full-host,streaming").at(0);
  EXPECT_EQ(answer.at("recommended").at("method"), "full");
  EXPECT_EQ(answer.at("recommended").at("loss").at("kind"), "construction");
  EXPECT_EQ(answer.at("runner_up").at("method"), "full-host");
}

TEST_F(Advise, AnswersEachMachineBatchAndContext) {
  const Json answers = answers_of(
      "advise --as llama-3.2-1b --hw h100,rtx-4090 --context 512,1K --batch 1,2 --methods full "
      "--weight-bits 4 --kv-bits 4");
  ASSERT_EQ(answers.size(), 8u);
  EXPECT_EQ(answers.at(0).at("hardware"), "h100");
  EXPECT_EQ(answers.at(7).at("hardware"), "rtx-4090");
  EXPECT_EQ(answers.at(7).at("batch"), 2);
  EXPECT_EQ(answers.at(7).at("context"), 1024);
}

TEST_F(Advise, ARunOfOnesOwnDecides) {
  const std::string methods = "--methods full,quest:budget=256 ";
  const cli::Outcome measured =
      cli::run("compare --model tiny --quiet --no-plot --tasks niah_single_1 --lengths 512 --samples 6 " + methods +
               "--out " + folder("run"));
  ASSERT_EQ(measured.code, 0) << measured.text;
  const Json without = answers_of("advise --as llama-3.2-1b --hw h100 --context 512 --lose 100 " + methods).at(0);
  EXPECT_EQ(without.at("recommended").at("method"), "full");
  const std::string asked = "advise --as llama-3.2-1b --hw h100 --context 512 --lose 100 --accuracy " + folder("run");
  EXPECT_EQ(cli::run(asked).code, 0) << "without --methods, quest has the run's budget, not its own";
  const Json with = answers_of(asked + " " + methods).at(0);
  EXPECT_TRUE(without.at("runner_up").is_null()) << "nothing that ships was run at 512";
  const bool first = with.at("recommended").at("method") == "quest:budget=256";
  const Json& quest = with.at(first ? "recommended" : "runner_up");
  ASSERT_EQ(quest.at("method"), "quest:budget=256") << "a limit of 100 points admits whatever was measured";
  EXPECT_EQ(quest.at("loss").at("kind"), "your run");
  EXPECT_EQ(quest.at("loss").at("measured"), true);
  EXPECT_EQ(quest.at("loss").at("model"), "tiny");
}

TEST_F(Advise, SaysWhatIsWrong) {
  HardwareProfile unknown = load_profile("h100");
  unknown.host.memory_gb = 0;
  std::ofstream(folder("machine.json")) << profile_to_json(unknown);
  const std::pair<std::string, const char*> cases[] = {
      {"--context 8K", "needs --hw"},
      {"--hw " + folder("machine.json"), "does not say how much host memory its machine has"},
      {"--hw h10", "Did you mean 'h100'?"},
      {"--hw h100 --lose 101", "--lose is 101: give points from 0 to 100"},
      {"--hw h100 --batch max", "'max' is not a whole number"},
      {"--hw h100 --kv-bits 3", "--kv-bits is 3"},
      {"--hw h100 --methods full,full", "'full' is listed twice"},
      {"--hw h100 --accuracy " + folder("none"), "none"},
  };
  for (const auto& [arguments, says] : cases) expect_refused("advise " + arguments, {says});
}

}  // namespace
}  // namespace tandem::testing
