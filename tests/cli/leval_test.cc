// `tandem eval leval` as a whole: the run folder, --resume, and bad input.
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "tests/cli/background.h"
#include "tests/cli/program.h"
#include "tests/cli/program_fixture.h"
#include "tests/eval/leval/leval_folder.h"

namespace tandem::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class LEvalProgram : public ProgramTest {
 protected:
  LEvalProgram() {
    data.add("tpo", "exam", {"A barn is red."}, {"Which?\nA. red\nB. blue", "Where?\nA. here\nB. there"}, {"A", "B"});
    data.add("gov_report_summ", "rouge", {"It rained. Then it snowed."}, {"Sum it up."}, {"Rain and snow."});
  }
  std::string command(const std::string& more) const {
    return "eval leval --model tiny --quiet --no-plot --methods full,streaming:sinks=16,window=64 --data '" +
           data.path().string() + "' " + more;
  }
  LEvalFolder data;
};

TEST_F(LEvalProgram, ARunLeavesAFolderWithUpstreamsFigures) {
  const cli::Outcome done = cli::run(command("--out " + folder("a")));
  ASSERT_EQ(done.code, 0) << done.text;
  EXPECT_THAT(bytes("a", "report.txt"), AllOf(HasSubstr("1 to 2 samples per task, complete"), HasSubstr("exact_match"),
                                              HasSubstr("geometric_mean"), HasSubstr("simulated for A100-80G")));
  EXPECT_THAT(bytes("a", "manifest.json"), AllOf(HasSubstr("leval/v1+data:"), HasSubstr("--max-length ")));
  EXPECT_THAT(bytes("a", "leval.json"), AllOf(HasSubstr("\"full\": {"), HasSubstr("\"rougeL\": ")));
  EXPECT_THAT(bytes("a", "report.md"), AllOf(HasSubstr("# L-Eval on"), HasSubstr("## L-Eval")));
  std::filesystem::copy(folder("a"), folder("copy"));
  EXPECT_EQ(cli::run("gate --baseline " + folder("a") + " --run " + folder("copy")).code, 0);
  EXPECT_EQ(cli::run("report " + folder("a")).code, 0);
}

TEST_F(LEvalProgram, QuestionsAboutADocumentPrefillItOnce) {
  std::string document;
  for (int i = 0; i < 40; ++i) document += "Lily saw " + std::to_string(i) + " red barns. ";
  data.add("tpo", "exam", {document}, {"Which?\nA. red\nB. blue", "Where?\nA. here\nB. there"}, {"A", "B"});
  const std::string options = "--prefill-chunk 32 --force --out ";
  ASSERT_EQ(cli::run(command(options + folder("alone"))).code, 0);
  const auto shares = [&](const std::string& cache) {
    const cli::Outcome done = cli::run(command("--prefix-cache " + cache + " " + options + folder("a")));
    EXPECT_EQ(done.code, 0) << done.text;
    EXPECT_THAT(done.text, HasSubstr("The prefix cache had "));
    EXPECT_THAT(bytes("a", "report.md"), HasSubstr("- The prefix cache had "));
    EXPECT_EQ(bytes("a", "samples.jsonl"), bytes("alone", "samples.jsonl"));
    const auto reuse = nlohmann::json::parse(bytes("a", "summary.json"))["prefix_cache"];
    return double(reuse["reused_tokens"]) / double(reuse["prefill_tokens"]);
  };
  const double in_run = shares("memory");
  EXPECT_GT(in_run, 0.25);
  EXPECT_LT(in_run, 0.5) << "of two questions, the second";
  EXPECT_EQ(shares(folder("kept")), in_run);
  EXPECT_EQ(shares(folder("kept")), 1);
  EXPECT_EQ(shares("memory --device emu"), in_run) << "on a real clock";
}

TEST_F(LEvalProgram, FilesThatAreNotReadAreNamedUnlessTasksAreChosen) {
  data.write("Open-ended-tasks/legal_contract.jsonl", "not read");
  const cli::Outcome all = cli::run(command("--out " + folder("a")));
  ASSERT_EQ(all.code, 0) << all.text;
  EXPECT_THAT(all.text, HasSubstr("--data: not read from '" + data.path().string() +
                                  "': Open-ended-tasks/legal_contract.jsonl; a name must be a data set's, "));
  const cli::Outcome chosen = cli::run(command("--tasks 'tpo, gov_report_summ' --out " + folder("b")));
  ASSERT_EQ(chosen.code, 0) << chosen.text;
  EXPECT_THAT(chosen.text, Not(HasSubstr("not read")));
}

TEST_F(LEvalProgram, ResumeMakesWhatIsMissingAndTheSameBytes) {
  ASSERT_EQ(cli::run(command("--out " + folder("a"))).code, 0);
  const std::string whole = bytes("a", "samples.jsonl");
  std::ofstream(std::filesystem::path(folder("a")) / "samples.jsonl") << whole.substr(0, whole.size() / 2);
  const cli::Outcome resumed = cli::run(command("--resume --out " + folder("a")));
  ASSERT_EQ(resumed.code, 0) << resumed.text;
  EXPECT_EQ(bytes("a", "samples.jsonl"), whole);
}

TEST_F(LEvalProgram, WhatIsWrongIsSaidBeforeFilesAreRead) {
  ASSERT_EQ(cli::run(command("--out " + folder("a"))).code, 0);
  data.write("Closed-ended-tasks/tpo.jsonl", "damaged");
  EXPECT_THAT(cli::run("eval leval --model tiny --methods ques --data '" + data.path().string() + "'").text,
              HasSubstr("Did you mean 'quest'?"));
  const cli::Outcome outcome = cli::run(command("--out " + folder("a")), cli::kOnlyErrors);
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.text, AllOf(HasSubstr("already holds a run"), HasSubstr("--resume")));
  std::ofstream(folder("file")) << "x";
  EXPECT_THAT(cli::run(command("--out " + folder("file"))).text, HasSubstr("is a file"));
}

TEST_F(LEvalProgram, ReadingCanBeInterrupted) {
  constexpr std::size_t kQuestions = 50'000;  // their prompts are encoded for seconds
  data.add("tpo", "exam", {"A barn is red."}, std::vector<std::string>(kQuestions, "Which?"),
           std::vector<std::string>(kQuestions, "A"));
  const int opening = inotify_init1(IN_CLOEXEC);
  inotify_add_watch(opening, (data.path() / "Closed-ended-tasks/tpo.jsonl").c_str(), IN_OPEN);
  const pid_t program = cli::start(command("--tasks tpo --out " + folder("a")), folder("errors"));
  pollfd opened{opening, POLLIN, 0};
  EXPECT_EQ(poll(&opened, 1, 30'000), 1) << "the program opens the file";
  kill(program, SIGINT);
  EXPECT_EQ(cli::exit_code_of(program), 3);
  close(opening);
  EXPECT_THAT(bytes("", "errors"), HasSubstr("Interrupted before the first sample; nothing was written."));
  EXPECT_FALSE(std::filesystem::exists(folder("a")));
}

TEST_F(LEvalProgram, BadInputIsASentence) {
  const std::pair<const char*, const char*> cases[] = {
      {"--tasks tpu", "Did you mean 'tpo'?"},
      {"--tasks sci_fi", "one prompt for two answers"},
      {"--tasks tpo,tpo", "'tpo' is given twice"},
      {"--tasks quality", "there is no 'quality.jsonl'"},
      {"--samples 0", "--samples is 0: give 1 to"},
      {"--max-length 1", "--max-length is 1"},
      {"--batch 0", "--batch is 0"},
      {"--chat-format qwen3", "add --chat"},
      {"--methods ques", "Did you mean 'quest'?"},
  };
  for (const auto& [arguments, says] : cases) {
    const cli::Outcome outcome = cli::run("eval leval --model tiny --quiet --no-plot --data '" + data.path().string() +
                                              "' --out " + folder("none") + " " + arguments,
                                          cli::kOnlyErrors);
    EXPECT_EQ(outcome.code, 2) << arguments << "\n" << outcome.text;
    EXPECT_THAT(outcome.text, HasSubstr(says));
    EXPECT_FALSE(std::filesystem::exists(folder("none"))) << arguments;
  }
  EXPECT_THAT(cli::run("eval leval --data /no/such --model tiny").text, HasSubstr("there is no folder '/no/such'"));
}

}  // namespace
}  // namespace tandem::testing
