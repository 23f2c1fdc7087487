// The program as a user meets it: run as a child process, judged by exit code and output.
#include "tests/cli/program.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <pty.h>
#include <sstream>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "engine/common/json.h"
#include "eval/report/table.h"
#include "tests/cli/program_fixture.h"
#include "tests/files.h"

namespace tandem::cli {
namespace {

using tandem::testing::expect_refused;
using tandem::testing::RefusedUsage;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST(Program, HelpTeachesAndEndsWithZero) {
  const Outcome top = run("--help", kOnlyOutput);
  EXPECT_EQ(top.code, 0);
  EXPECT_THAT(top.text, AllOf(HasSubstr("Examples:"), HasSubstr("tandem compare"), HasSubstr("Exit codes: 0 done")));
  for (const char* command : {"info", "methods", "compare", "gate", "generate", "profile", "profile heads", "bench",
                              "bench decode", "bench prefill", "eval", "eval perplexity"}) {
    const Outcome help = run(std::string(command) + " --help", kOnlyOutput);
    EXPECT_EQ(help.code, 0) << command;
    EXPECT_THAT(help.text, AllOf(HasSubstr("Example"), HasSubstr(std::string("tandem ") + command))) << command;
    EXPECT_THAT(top.text, HasSubstr(command));
  }
}

TEST(Program, HelpIsAWordToo) {
  EXPECT_EQ(run("help", kOnlyOutput).text, run("--help", kOnlyOutput).text);
  const Outcome inner = run("help profile heads", kOnlyOutput);
  EXPECT_EQ(inner.code, 0);
  EXPECT_EQ(inner.text, run("profile heads --help", kOnlyOutput).text);
  EXPECT_EQ(run("help fluxion", kOnlyOutput).text, run("fluxion --help", kOnlyOutput).text);
}

// What a caller closed is no file of the program's own.
TEST(Program, ClosedStandardFilesAreNoOthers) {
  const auto with = [](const std::string& arguments, const char* files) {
    return WEXITSTATUS(std::system(("timeout 20 '" TANDEM_PROGRAM "' " + arguments + " " + files).c_str()));
  };
  EXPECT_EQ(with("methods", ">&- <&- 2>/dev/null"), 3) << "nobody could read it";
  EXPECT_EQ(with("methods", ">/dev/null <&- 2>&-"), 0);
  EXPECT_EQ(with("generate --model tiny --chat --chat-format qwen2 --max-new 2", "<&- >/dev/null 2>&1"), 0);
  EXPECT_EQ(with("generate --model tiny --chat --chat-format qwen2 --max-new 2", "</ >/dev/null 2>&1"), 2);
}

// Notes, here that of a prompt with a special token's text and the times: where nobody can read them the work goes on.
TEST(Program, NotesThatCannotBeWrittenAreLeftOut) {
  const std::string command = "generate --model tiny --max-new 2 --prompt '</s>'";
  const Outcome told = run(command), untold = run(command, "2>/dev/full");
  EXPECT_THAT(told.text,
              AllOf(HasSubstr("the text of a special token"), HasSubstr("TTFT "), HasSubstr("device busy ")));
  EXPECT_EQ(untold.code, 0);
  EXPECT_EQ(untold.text, run(command, kOnlyOutput).text);
}

TEST(Program, EvalHasExamplesOfItsOwn) {
  EXPECT_THAT(run("eval --help").text, AllOf(HasSubstr("tandem eval longbench"), Not(HasSubstr("tandem compare"))));
}

// Where somebody else's files lie, a model's for example.
TEST(Program, TakesNoLibraryFromTheCurrentFolder) {
  const tandem::testing::TemporaryFolder folder;
  for (const char* name : {"libfmt.so.9", "libpcre2-8.so.0", "libstdc++.so.6", "libopenblas.so.0"})
    std::ofstream(folder / name) << "no library";
  EXPECT_EQ(std::system(("cd '" + folder.path().string() + "' && '" TANDEM_PROGRAM "' methods >/dev/null").c_str()), 0);
}

TEST(Program, VersionNamesTheCommit) {
  const Outcome outcome = run("--version", kOnlyOutput);
  EXPECT_EQ(outcome.code, 0);
  EXPECT_THAT(outcome.text, ::testing::MatchesRegex("tandem [0-9]+\\.[0-9]+\\.[0-9]+ \\([0-9a-f+chngesuko w]+\\)\n"));
}

TEST(Program, NoSubcommandIsBadUsageWithTheHelp) {
  const Outcome outcome = run("", kOnlyErrors);
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.text, HasSubstr("compare"));
}

TEST_P(RefusedUsage, EndsWithTwoAndOneSentence) {
  expect_refused(GetParam().arguments, {GetParam().says});
}

INSTANTIATE_TEST_SUITE_P(
    Program, RefusedUsage,
    ::testing::Values(
        cli::BadUsage{"help nosuch", "tandem has no 'nosuch'. There are"},
        cli::BadUsage{"help fluxion colect", "tandem fluxion has no 'colect'. Did you mean 'collect'?"},
        cli::BadUsage{"help compare extra", "tandem compare has no 'extra' to explain"},
        cli::BadUsage{"inof", "There is no subcommand 'inof'. Did you mean 'info'? There are"},
        cli::BadUsage{"comparre --lengths 4K", "Did you mean 'compare'?"},
        cli::BadUsage{"xyzzyplugh", "There is no subcommand 'xyzzyplugh'. There are"},
        cli::BadUsage{"--nonsense", "There is no option '--nonsense'."},
        cli::BadUsage{"info --modle x", "There is no option '--modle' of tandem info. Did you mean '--model'?"},
        cli::BadUsage{"info --modle=x", "'--modle' of tandem info. Did you mean '--model'?"},
        cli::BadUsage{"info extra", "'extra' is one word too many; see tandem info --help."},
        cli::BadUsage{"info --model", "see tandem info --help."},
        cli::BadUsage{"info --hw h200 --hw h200", "--hw is given 2 times: give it once; see tandem info --help."},
        cli::BadUsage{"info --hw h20", "Did you mean 'h200'?"},
        cli::BadUsage{"profile heads --device gpu", "There is no device 'gpu'"},
        cli::BadUsage{"fluxion collect --out unused --device gpu", "There is no device 'gpu'"},
        cli::BadUsage{"bench decode --device sim", "--device is 'sim': bench takes real time, so give emu or cuda."},
        cli::BadUsage{"compare --device cuda --hw h200", "--hw is 'h200', but --device cuda takes real time"},
        cli::BadUsage{"compare --workload recorded", "belong to --as"},
        cli::BadUsage{"compare --context 32K", "belong to --as"},
        cli::BadUsage{"compare --context 16K", "belong to --as"},
        cli::BadUsage{"reproduce --out x.json", "--out holds what is reproduced: name it too"},
        cli::BadUsage{"generate --prompt 'caf'$(printf '\\351')' au lait'", "--prompt: byte 3 (0xe9) is no UTF-8"},
        cli::BadUsage{"generate --prompt-file /bin/true", "The prompt file '/bin/true': byte"},
        cli::BadUsage{"reproduce asyncspade-table2 --quiet --out /proc/r.json",
                      "--out: '/proc/r.json' cannot be written"},
        cli::BadUsage{"profile heads --quiet --out /proc/r.json", "--out: '/proc/r.json' cannot be written"},
        cli::BadUsage{"info --hw /no/such.json", "/no/such.json"},
        cli::BadUsage{"info --model /no/such/folder", "/no/such/folder"},
        cli::BadUsage{"methods hybrid-fixd", "Did you mean 'hybrid-fixed'?"},
        cli::BadUsage{"methods full streaming", "'streaming' is one word too many"}));

TEST(Program, WhatCannotBePrintedIsAnError) {
  for (const char* command : {"methods", "methods full", "info", "reproduce", "--help", "--version", "compare --help"})
    EXPECT_EQ(cli::run(command, ">/dev/full 2>/dev/null").code, 3) << command;
}

TEST(Program, HelpOffersWhatIsTaken) {
  for (const char* command : {"compare --help", "eval perplexity --help"})
    EXPECT_THAT(run(command).text, Not(HasSubstr("synthetic:"))) << command;
  EXPECT_THAT(run("generate --help").text, HasSubstr("synthetic:<preset>"));
  EXPECT_THAT(run("compare --help").text, AllOf(HasSubstr("--ruler-qa TEXT  "), Not(HasSubstr("TEXT ..."))));
}

/// The names that a help lists under `title`.
std::vector<std::string> names_under(const std::string& title, const std::string& text) {
  std::vector<std::string> names;
  const std::size_t at = text.find(title);
  std::istringstream lines(at == std::string::npos ? "" : text.substr(at + title.size()));
  for (std::string line; std::getline(lines, line) && !line.empty();)
    if (line.size() > 2 && line[2] != ' ') names.push_back(line.substr(2, line.find(' ', 2) - 2));
  return names;
}

/// Lines of more than 100 columns that could have been broken: a word and its indent alone could not.
std::vector<std::string> too_wide(const std::string& text) {
  std::vector<std::string> wide;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t word = line.find_first_not_of(' ');
    if (line.size() > 100 && line.find(' ', word) != std::string::npos) wide.push_back(line);
  }
  return wide;
}

void expect_narrow_help(const std::string& command) {
  const std::string help = run(command + " --help").text;
  EXPECT_THAT(too_wide(help), IsEmpty()) << command;
  for (const std::string& name : names_under("\nSubcommands:\n", help))
    expect_narrow_help(command + (command.empty() ? "" : " ") + name);
}

TEST(Program, HelpFitsATerminalOf100Columns) {
  ASSERT_THAT(names_under("\nSubcommands:\n", run("--help").text), ::testing::Contains("compare"));
  expect_narrow_help("");
  const std::string methods = "\n" + run("methods").text;
  EXPECT_THAT(too_wide(methods), IsEmpty());
  ASSERT_THAT(names_under("\n", methods), ::testing::Contains("fluxion"));
  for (const std::string& name : names_under("\n", methods))
    EXPECT_THAT(too_wide(run("methods " + name).text), IsEmpty()) << name;
}

// Of 70 columns.
TEST(Program, TablesAndHelpFitTheTerminal) {
  for (const char* command : {"plan", "methods", "info", "gate --help"}) {
    winsize size{};
    size.ws_row = 50;
    size.ws_col = 70;
    int terminal = -1;
    const pid_t child = forkpty(&terminal, nullptr, nullptr, &size);
    if (child < 0) GTEST_SKIP() << "not available: a pseudo-terminal (" << std::strerror(errno) << ")";
    if (child == 0) {
      execl("/bin/sh", "sh", "-c", (std::string("exec '" TANDEM_PROGRAM "' ") + command).c_str(), nullptr);
      _exit(127);
    }
    std::string text;
    std::array<char, 4096> buffer{};
    for (ssize_t got; (got = read(terminal, buffer.data(), buffer.size())) > 0;)
      text.append(buffer.data(), static_cast<std::size_t>(got));
    close(terminal);
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(WEXITSTATUS(status), 0) << command;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      if (line.ends_with('\r')) line.pop_back();
      EXPECT_LE(eval::text_columns(line), 70u) << command << ": " << line;
    }
    EXPECT_GT(text.size(), 500u) << command;
  }
}

TEST(Program, InfoDescribesBuildMachineProfilesAndModel) {
  const Outcome outcome = run("info");
  EXPECT_EQ(outcome.code, 0) << outcome.text;
  EXPECT_THAT(outcome.text,
              AllOf(HasSubstr("GCC"), HasSubstr("OpenBLAS"), HasSubstr("usable here"), HasSubstr("fluxion-a100"),
                    HasSubstr("KV heads"), HasSubstr("KV per token"), HasSubstr("(bf16); "), Not(HasSubstr("nan"))));
}

TEST(Program, InfoShowsOneProfile) {
  const Outcome outcome = run("info --hw fluxion-a100");
  EXPECT_EQ(outcome.code, 0) << outcome.text;
  EXPECT_THAT(outcome.text, AllOf(HasSubstr("hbm_gbps"), HasSubstr("source"), Not(HasSubstr("KV per token"))));
}

TEST(Program, InfoAsJsonIsOneDocument) {
  const auto printed = [](const std::string& arguments) {
    const Outcome outcome = run("info --json " + arguments, kOnlyOutput);
    EXPECT_EQ(outcome.code, 0) << arguments;
    return outcome.text;
  };
  const auto all = parse_json(printed(""), "JSON");
  EXPECT_EQ(all.at("model").at("name"), "embedded");
  EXPECT_GT(all.at("machine").at("memory_bytes"), all.at("model").at("weights_bytes"));
  EXPECT_GT(all.at("profiles").size(), 3u);
  for (const auto& shape : all.at("shapes")) {
    EXPECT_EQ(shape.at("kv_bytes_per_token").get<std::uint64_t>(), 2 * 2 * shape.at("layers").get<std::uint64_t>() *
                                                                       shape.at("kv_heads").get<std::uint64_t>() *
                                                                       shape.at("head_dim").get<std::uint64_t>())
        << shape;
  }
  EXPECT_EQ(parse_json(printed("--model synthetic:llama-3.1-8b"), "JSON").at("layers"), 32);
  const std::filesystem::path file = std::filesystem::path(::testing::TempDir()) / "tandem_info_mine.json";
  testing::write_bytes(file, printed("--hw h100"));
  auto mine = parse_json(printed("--hw " + file.string()), "JSON");
  EXPECT_EQ(mine["name"], "tandem_info_mine") << "as its file";
  mine["name"] = "h100";
  EXPECT_EQ(mine, parse_json(printed("--hw h100"), "JSON"));
  std::filesystem::remove(file);
  EXPECT_EQ(run("info --json --hw h100 --model embedded").code, 2);
}

TEST(Program, MethodsListsAndExplains) {
  const Outcome list = run("methods");
  EXPECT_EQ(list.code, 0);
  EXPECT_THAT(list.text, AllOf(HasSubstr("full"), HasSubstr("streaming"), HasSubstr("hybrid-fixed")));
  const Outcome one = run("methods hybrid-fixed");
  EXPECT_EQ(one.code, 0);
  EXPECT_THAT(one.text, AllOf(HasSubstr("budget"), HasSubstr("default")));
}

}  // namespace
}  // namespace tandem::cli
