// `tandem eval perplexity` as a whole: the run folder, the same bytes in every run, ^C and --resume, full disks, and
// bad input.
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "tests/cli/background.h"
#include "tests/cli/program.h"
#include "tests/cli/program_fixture.h"
#include "tests/engine/model/model_folder.h"

namespace tandem::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
namespace fs = std::filesystem;

constexpr const char* kSmallEval =
    "eval perplexity --quiet --no-plot --context 128 --new 16 --windows 6 --batch 2 --methods full,streaming,hgca ";

class EvalProgram : public ProgramTest {
 protected:
  void expect_same(const char* run, const char* other) {
    for (const char* file : {"windows.jsonl", "timings.jsonl", "summary.json"})
      EXPECT_EQ(bytes(run, file), bytes(other, file)) << file;
  }
};

TEST_F(EvalProgram, ARunLeavesAFolder) {
  const cli::Outcome first = cli::run(std::string(kSmallEval) + "--out " + folder("a"));
  ASSERT_EQ(first.code, 0) << first.text;
  EXPECT_THAT(first.text, AllOf(HasSubstr("perplexity"), HasSubstr("simulated for"), HasSubstr(folder("a"))));
  EXPECT_EQ(cli::lines(bytes("a", "windows.jsonl")), 18u);
  EXPECT_EQ(cli::lines(bytes("a", "timings.jsonl")), 18u);
  EXPECT_THAT(
      bytes("a", "manifest.json"),
      AllOf(HasSubstr("tandem eval perplexity --model embedded"), HasSubstr("weights_hash"), HasSubstr("git_commit"),
            HasSubstr("perplexity/decode+text:"), Not(HasSubstr("finished_utc\": \"\""))));
  EXPECT_THAT(bytes("a", "report.md"), AllOf(HasSubstr("| full |"), HasSubstr("## How it was made")));
  ASSERT_EQ(cli::run(std::string(kSmallEval) + "--threads 1 --out " + folder("b")).code, 0);
  expect_same("a", "b");
}

TEST_F(EvalProgram, ThePlotShowsPerplexityAndPositions) {
  // One window has no interval.
  ASSERT_EQ(
      cli::run("eval perplexity --quiet --context 64 --new 2 --windows 1 --methods full --out " + folder("one")).code,
      0);
  const cli::Outcome done = cli::run(
      "eval perplexity --quiet --context 128 --new 16 --windows 2 --methods full,streaming --out " + folder("a"));
  ASSERT_EQ(done.code, 0) << done.text;
  if (!fs::exists(folder("a") + "/plot.svg")) {
    EXPECT_THAT(done.text, HasSubstr("The plot was not drawn"));
    GTEST_SKIP() << "matplotlib is not here";
  }
  EXPECT_THAT(bytes("one", "plot.svg"), HasSubstr(">perplexity, with 95 % interval (n = 1 window)<"));
  EXPECT_THAT(bytes("a", "report.md"), HasSubstr("![Perplexity and where a step's time goes](plot.png)"));
  EXPECT_THAT(bytes("a", "plot.svg"),
              AllOf(HasSubstr("nats per token more than full, with 95 % interval (n = 2"), HasSubstr(">streaming<"),
                    HasSubstr(">to 16<"), HasSubstr("better than full")));
}

TEST_F(EvalProgram, WithoutMatplotlibThereIsAReportAndOneSentence) {
  if (!fs::exists("/usr/bin/python3")) GTEST_SKIP() << "not installed: /usr/bin/python3";
  write_bytes(folder("matplotlib.py"), "raise ImportError\n");
  setenv("PYTHONPATH", root_.path().c_str(), 1);
  const cli::Outcome done = cli::run(
      "eval perplexity --quiet --context 64 --new 2 --windows 1 --methods full --out " + folder("a"), cli::kOnlyErrors);
  unsetenv("PYTHONPATH");
  EXPECT_EQ(done.code, 0) << done.text;
  EXPECT_THAT(done.text, HasSubstr("The plot was not drawn: python3 has no matplotlib (Debian package "
                                   "python3-matplotlib).\n"));
  EXPECT_EQ(done.text.find("not drawn"), done.text.rfind("not drawn")) << "once";
  EXPECT_THAT(bytes("a", "report.txt"), HasSubstr("perplexity"));
}

TEST_F(EvalProgram, TheKeptReportIsAsWideWhateverTheTerminal) {
  const std::string command =
      "eval perplexity --quiet --no-plot --context 64 --new 2 --windows 1 --methods full --out ";
  ASSERT_EQ(cli::run(command + folder("a"), "2>&1 >/dev/null").code, 0);
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
  ASSERT_GE(terminal, 0);
  ASSERT_EQ(grantpt(terminal), 0);
  ASSERT_EQ(unlockpt(terminal), 0);
  const winsize size{.ws_row = 24, .ws_col = 60, .ws_xpixel = 0, .ws_ypixel = 0};
  ASSERT_EQ(ioctl(terminal, TIOCSWINSZ, &size), 0);
  const std::string its_name = ptsname(terminal);
  ASSERT_EQ(cli::run(command + folder("b"), ("2>&1 >" + its_name).c_str()).code, 0);
  close(terminal);
  EXPECT_EQ(bytes("b", "report.txt"), bytes("a", "report.txt"));
}

TEST_F(EvalProgram, TablesSayWhereQuestHasNoDenseLayers) {
  const cli::Outcome done = cli::run(
      "eval perplexity --quiet --no-plot --context 64 --new 8 --windows 1 --methods full,quest:budget=32 --out " +
      folder("a"));
  ASSERT_EQ(done.code, 0) << done.text;
  EXPECT_THAT(bytes("a", "report.txt"), HasSubstr("\nquest with dense_layers=0 "));
  EXPECT_THAT(bytes("a", "report.md"), HasSubstr("\nquest with dense_layers=0 "));
}

TEST_F(EvalProgram, ForceReplacesAndResumeContinues) {
  ASSERT_EQ(cli::run(std::string(kSmallEval) + "--out " + folder("whole")).code, 0);
  const std::string run = std::string(kSmallEval) + "--out " + folder("a");
  ASSERT_EQ(cli::run(run + " --prefill-chunk 64").code, 0);
  const cli::Outcome there = cli::run(run, cli::kOnlyErrors);
  EXPECT_EQ(there.code, 2);
  EXPECT_THAT(there.text, AllOf(HasSubstr("--resume"), HasSubstr("--force")));
  for (const char* options : {" --resume", " --resume --prefill-chunk 64 --precision f16"}) {
    const cli::Outcome other = cli::run(run + options, cli::kOnlyErrors);
    EXPECT_EQ(other.code, 2) << options;
    EXPECT_THAT(other.text, HasSubstr("made by another command")) << options;
  }
  ASSERT_EQ(cli::run(run + " --force").code, 0);
  expect_same("a", "whole");
  // As a kill and a bad disk leave it.
  std::string text = bytes("a", "windows.jsonl");
  write_bytes(folder("a") + "/windows.jsonl", "?" + text.substr(1, text.size() / 2));
  const cli::Outcome resumed = cli::run(run + " --resume", cli::kOnlyErrors);
  EXPECT_EQ(resumed.code, 0) << resumed.text;
  EXPECT_THAT(resumed.text, HasSubstr("windows.jsonl:1: not valid JSON"));
  expect_same("a", "whole");
}

TEST_F(EvalProgram, AnInterruptKeepsFinishedWindows) {
  const std::string command =
      "eval perplexity --quiet --no-plot --context 256 --new 16 --windows 24 --methods full,hgca --out ";
  const pid_t child = cli::start(command + folder("a"));
  ASSERT_GT(child, 0);
  const std::string file = folder("a") + "/timings.jsonl";
  cli::wait_for_lines(file, 3);
  kill(child, SIGINT);
  EXPECT_EQ(cli::exit_code_of(child), 3);
  EXPECT_GE(cli::lines_of(file), 3u);
  EXPECT_LT(cli::lines_of(file), 48u);
  ASSERT_EQ(cli::run(command + folder("a") + " --resume").code, 0);
  ASSERT_EQ(cli::run(command + folder("whole")).code, 0);
  expect_same("a", "whole");
}

TEST_F(EvalProgram, NoRoomForMoreWindows) {
  const std::string command = std::string(kSmallEval) + "--out ";
  ASSERT_EQ(cli::run(command + folder("whole")).code, 0);
  const cli::Outcome stopped = cli::run_limited(command + folder("a"), 3000);
  EXPECT_EQ(stopped.code, 3);
  EXPECT_THAT(stopped.text, AllOf(HasSubstr("cannot be written (File too large)"), HasSubstr("--resume --out")));
  EXPECT_GE(cli::lines(bytes("a", "windows.jsonl")), 2u);
  ASSERT_EQ(cli::run(command + folder("a") + " --resume").code, 0);
  expect_same("a", "whole");
}

TEST_F(EvalProgram, ScoresATextOfOnesOwn) {
  std::string text;
  for (int i = 0; i < 200; ++i) text += "The café sold " + std::to_string(i) + " cups of coffee. ";
  write_bytes(folder("book.txt"), text);
  const std::string command =
      "eval perplexity --quiet --no-plot --context 64 --new 8 --windows 1 --methods full --text " + folder("book.txt") +
      " --out " + folder("a");
  const cli::Outcome one = cli::run(command);
  ASSERT_EQ(one.code, 0) << one.text;
  EXPECT_THAT(bytes("a", "report.txt"),
              AllOf(HasSubstr("book.txt: 1 window"), HasSubstr("[-]"), HasSubstr("no interval")));
  write_bytes(folder("book.txt"), text + "more");
  const cli::Outcome changed = cli::run(command + " --resume", cli::kOnlyErrors);
  EXPECT_EQ(changed.code, 2) << "another text under the same name";
}

TEST_F(EvalProgram, BadInputLeavesNoFolderBehind) {
  write_bytes(folder("latin1.txt"), std::string(700, 'a') + "caf\xe9 au lait");
  write_bytes(folder("short.txt"), "too short");
  struct Case {
    std::string arguments;
    std::vector<std::string> says;
  };
  const Case cases[] = {
      {"--methods full,hgca,full", {"'full' is listed twice"}},
      {"--methods full,hgcaa", {"'hgcaa'", "Did you mean 'hgca'?"}},
      {"--text " + folder("latin1.txt"), {folder("latin1.txt"), "byte 703 (0xe9)", "no UTF-8"}},
      {"--text " + folder("short.txt"), {folder("short.txt"), "tokens", "longer text"}},
      {"--text /no/such.txt", {"/no/such.txt", "cannot be read"}},
      {"--text " + root_.path().string(), {"cannot be read"}},
      {"--device-kv 1M", {"--device-kv is 1048576 bytes", "lower --batch or --context"}},
      {"--device-kv lots", {"--device-kv", "'lots'"}},
      {"--host-kv 64K --methods hgca --windows 1", {"host KV store is full", "--host-kv"}},
      {"--context 64K", {"32768 positions"}},
      {"--context 16M --windows 100000", {"32768 positions"}},  // at once: no prose is made for these
      {"--context 1K,2K", {"--context is '1K,2K'", "one length"}},
      {"--new 0", {"--new", "'0'"}},
      {"--windows 0", {"--windows is 0"}},
      {"--batch 0", {"--batch is 0"}},
      {"--model synthetic:qwen3-8b", {"random weights"}},
      {"--resume --force", {"--force", "--resume"}},
      {"--resume", {"There is no folder"}},
  };
  for (const Case& c : cases) {
    const cli::Outcome outcome =
        cli::run("eval perplexity --quiet --no-plot --out " + folder("run") + " " + c.arguments, cli::kOnlyErrors);
    EXPECT_EQ(outcome.code, 2) << c.arguments << "\n" << outcome.text;
    EXPECT_EQ(cli::lines(outcome.text), 1u) << outcome.text;
    for (const std::string& part : c.says) EXPECT_THAT(outcome.text, HasSubstr(part)) << c.arguments;
    EXPECT_FALSE(fs::exists(folder("run"))) << c.arguments;
  }
}

}  // namespace
}  // namespace tandem::testing
