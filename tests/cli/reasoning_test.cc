// `tandem eval reasoning` as a whole: the run folder, drawing, --resume, and bad input.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "tests/cli/program.h"
#include "tests/cli/run_folders.h"
#include "tests/eval/reasoning/reasoning_folder.h"

namespace tandem::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsSubsetOf;
using ::testing::Not;
using ::testing::UnorderedElementsAreArray;

class ReasoningProgram : public RunFolders {
 protected:
  std::string command(const std::string& more) const {
    return "eval reasoning --model tiny --quiet --no-plot --max-new 12 --data '" + data.path() + "' " + more;
  }
  std::vector<std::string> lines(const char* run, const char* file = "samples.jsonl") const {
    std::istringstream text(bytes(run, file));
    std::vector<std::string> all;
    for (std::string line; std::getline(text, line);) all.push_back(line);
    return all;
  }
  void done(const char* run, const std::string& more) const {
    const cli::Outcome outcome = cli::run(command(more + " --out " + folder(run)));
    ASSERT_EQ(outcome.code, 0) << outcome.text;
  }
  ReasoningFolder data;
};

constexpr const char* kDrawn = "--methods full,tova:budget=8 --temperature 0.8 --top-p 0.95 --seed 3 --repeats 3";

TEST_F(ReasoningProgram, ARunLeavesAFolderWithPassAndFlops) {
  data.add("aime24", 2);
  data.add("math500", 3);
  const cli::Outcome outcome = cli::run(command("--methods full,tova:budget=8,hgca --out " + folder("a")));
  ASSERT_EQ(outcome.code, 0) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr("reasoning.json"));
  EXPECT_THAT(bytes("a", "report.txt"), AllOf(HasSubstr("Pass@1"), HasSubstr("FLOPs of a"), HasSubstr("cut off")));
  EXPECT_THAT(bytes("a", "manifest.json"),
              AllOf(HasSubstr("reasoning/v1+data:"), HasSubstr("draw:greedy+answers:1+max-new:12")));
  EXPECT_EQ(lines("a").size(), 15u);
  const auto json = nlohmann::json::parse(bytes("a", "reasoning.json"));
  EXPECT_EQ(json.at("points").size(), 6u);
  std::filesystem::copy(folder("a"), folder("copy"));
  const cli::Outcome gate = cli::run("gate --baseline " + folder("a") + " --run " + folder("copy"));
  EXPECT_EQ(gate.code, 0) << gate.text;
}

TEST_F(ReasoningProgram, DrawsDependOnNeitherBatchNorMethodsNorOtherProblems) {
  data.add("aime24", 3);
  data.add("gsm8k", 2);
  done("alone", kDrawn);
  done("batch", std::string(kDrawn) + " --batch 4");
  EXPECT_THAT(lines("batch"), UnorderedElementsAreArray(lines("alone")));
  done("full", "--methods full --temperature 0.8 --top-p 0.95 --seed 3 --repeats 3 --samples 2");
  EXPECT_THAT(lines("full"), IsSubsetOf(lines("alone")));
  done("other", "--methods full --temperature 0.8 --top-p 0.95 --seed 4 --repeats 3");
  std::set<std::string> texts;
  for (const char* run : {"full", "other"}) {
    for (const std::string& line : lines(run)) {
      const auto sample = nlohmann::json::parse(line);
      if (sample.at("task") == "aime24" && sample.at("index") < 3) texts.insert(sample.at("tokens").dump());
    }
  }
  EXPECT_EQ(texts.size(), 6u) << "three answers of two seeds to one problem";
  // A method that attends to everything chooses the same tokens, because its random numbers are the same.
  done("same", "--methods full,tova:budget=1.0 --temperature 0.8 --seed 3 --repeats 3");
  std::map<std::string, std::set<std::string>> by_sample;
  for (const std::string& line : lines("same")) {
    const auto sample = nlohmann::json::parse(line);
    by_sample[sample.at("task").get<std::string>() + sample.at("index").dump()].insert(sample.at("tokens").dump());
  }
  EXPECT_EQ(by_sample.size(), 15u);
  for (const auto& [sample, tokens] : by_sample) EXPECT_EQ(tokens.size(), 1u) << sample;
}

TEST_F(ReasoningProgram, ResumeMakesWhatIsMissingAndTheSameBytes) {
  data.add("aime24", 3);
  data.add("gsm8k", 2);
  const std::string options = std::string(kDrawn) + " --batch 2";
  done("a", options);
  const std::string whole = bytes("a", "samples.jsonl");
  {
    std::ofstream cut(std::filesystem::path(folder("a")) / "samples.jsonl");
    cut << whole.substr(0, whole.size() / 2);
  }
  done("a", options + " --resume");
  EXPECT_EQ(bytes("a", "samples.jsonl"), whole);
  data.add("aime24", 4);  // other data: another protocol
  const cli::Outcome other = cli::run(command(options + " --resume --out " + folder("a")));
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.text, HasSubstr("another protocol"));
}

TEST_F(ReasoningProgram, FilesThatAreNotReadAreNamedUnlessTasksAreChosen) {
  data.add("aime24", 1);
  data.add("math500", 1);
  data.add("AIME25", 1);
  data.write("notes.jsonl", "not read");
  const auto said = [&](const std::string& more, const char* run) {
    const cli::Outcome outcome =
        cli::run(command("--methods full " + more + " --out " + folder(run)), cli::kOnlyErrors);
    EXPECT_EQ(outcome.code, 0) << outcome.text;
    return outcome.text;
  };
  EXPECT_THAT(said("", "all"), HasSubstr("--data: not read from '" + data.path() +
                                         "': AIME25.jsonl, notes.jsonl; a name must begin with aime, gsm8k, gpqa or "
                                         "math in lower case, as aime25.jsonl.\n"));
  EXPECT_THAT(said("--tasks 'aime24, math500'", "chosen"), Not(HasSubstr("not read")));
  EXPECT_EQ(lines("chosen").size(), 2u) << "spaces between names are no part of them";
  EXPECT_EQ(lines("all").size(), 2u);
}

TEST_F(ReasoningProgram, BadInputIsASentence) {
  data.add("aime24", 1);
  const auto refused = [&](const std::string& more) {
    const cli::Outcome outcome = cli::run(command(more + " --out " + folder("a")));
    EXPECT_EQ(outcome.code, 2) << more;
    EXPECT_FALSE(std::filesystem::exists(folder("a")));
    return outcome.text;
  };
  EXPECT_THAT(refused("--tasks aime25"), HasSubstr("there is no 'aime25.jsonl'"));
  EXPECT_THAT(refused("--tasks poems"), HasSubstr("does not say what its answers are"));
  EXPECT_THAT(refused("--tasks ,"), HasSubstr("nothing between two commas"));
  EXPECT_THAT(refused("--tasks aime24,aime24"), HasSubstr("--tasks: 'aime24' is given twice"));
  EXPECT_THAT(refused("--repeats 2"), HasSubstr("greedy answers"));
  EXPECT_THAT(refused("--top-p 0.9"), HasSubstr("add --temperature"));
  EXPECT_THAT(refused("--temperature 1 --top-p 2"), HasSubstr("--top-p is 2"));
  EXPECT_THAT(refused("--no-thinking"), HasSubstr("add --chat"));
  EXPECT_THAT(refused("--chat --chat-format llama-3 --no-thinking"), HasSubstr("--no-thinking changes nothing"));
  EXPECT_THAT(refused("--chat"), HasSubstr("chat template"));
  EXPECT_THAT(refused("--samples 1000000"), HasSubstr("--samples"));
  EXPECT_THAT(refused("--batch 0"), HasSubstr("--batch is 0"));
  EXPECT_THAT(cli::run("eval reasoning --model tiny --max-new 1M --data '" + data.path() + "'").text,
              HasSubstr("leaves no room"));
  EXPECT_THAT(cli::run("eval reasoning --data /nowhere").text, HasSubstr("there is no file or folder '/nowhere'"));
  data.write("aime24.jsonl", "{\n");
  EXPECT_THAT(refused(""), HasSubstr("aime24.jsonl, line 1: not valid JSON"));
}

}  // namespace
}  // namespace tandem::testing
