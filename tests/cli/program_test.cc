// The program as a user meets it: run as a child process, judged by exit code and output.
#include "tests/cli/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

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

struct BadUsage {
  const char* arguments;
  const char* says;
};
void PrintTo(const BadUsage& usage, std::ostream* out) {
  *out << usage.arguments;
}

class ProgramBadUsage : public ::testing::TestWithParam<BadUsage> {};

TEST_P(ProgramBadUsage, EndsWithTwoAndOneSentenceOnStderr) {
  const Outcome outcome = run(GetParam().arguments, kOnlyErrors);
  EXPECT_EQ(outcome.code, 2) << outcome.text;
  EXPECT_THAT(outcome.text, AllOf(StartsWith("tandem: "), HasSubstr(GetParam().says)));
  EXPECT_EQ(outcome.text.find('\n'), outcome.text.size() - 1) << outcome.text;
  EXPECT_THAT(run(GetParam().arguments, kOnlyOutput).text, IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(
    Sentences, ProgramBadUsage,
    ::testing::Values(BadUsage{"inof", "There is no subcommand 'inof'. Did you mean 'info'? There are"},
                      BadUsage{"comparre --lengths 4K", "Did you mean 'compare'?"},
                      BadUsage{"xyzzyplugh", "There is no subcommand 'xyzzyplugh'. There are"},
                      BadUsage{"--nonsense", "There is no option '--nonsense'."},
                      BadUsage{"info --modle x",
                               "There is no option '--modle' of tandem info. Did you mean '--model'?"},
                      BadUsage{"info --modle=x", "'--modle' of tandem info. Did you mean '--model'?"},
                      BadUsage{"info extra", "'extra' is one word too many; see tandem info --help."},
                      BadUsage{"info --model", "see tandem info --help."},
                      BadUsage{"info --hw h20", "Did you mean 'h200'?"},
                      BadUsage{"info --hw /no/such.json", "/no/such.json"},
                      BadUsage{"info --model /no/such/folder", "/no/such/folder"},
                      BadUsage{"methods hybrid-fixd", "Did you mean 'hybrid-fixed'?"},
                      BadUsage{"methods full streaming", "'streaming' is one word too many"}));

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

TEST(Program, InfoDescribesBuildMachineProfilesAndModel) {
  const Outcome outcome = run("info");
  EXPECT_EQ(outcome.code, 0) << outcome.text;
  EXPECT_THAT(outcome.text,
              AllOf(HasSubstr("GCC"), HasSubstr("usable here"), HasSubstr("fluxion-a100"), HasSubstr("KV heads"),
                    HasSubstr("KV per token"), HasSubstr("(bf16); "), Not(HasSubstr("nan"))));
}

TEST(Program, InfoShowsOneProfile) {
  const Outcome outcome = run("info --hw fluxion-a100");
  EXPECT_EQ(outcome.code, 0) << outcome.text;
  EXPECT_THAT(outcome.text, AllOf(HasSubstr("hbm_gbps"), HasSubstr("source"), Not(HasSubstr("KV per token"))));
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
