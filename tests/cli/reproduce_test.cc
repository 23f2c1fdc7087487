// tandem reproduce as a user meets it: what there is, and names that there are not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cli/program.h"

namespace tandem::testing {
namespace {

using ::testing::HasSubstr;

TEST(Reproduce, ListsEveryExperimentAndFigure) {
  const cli::Outcome outcome = cli::run("reproduce");
  EXPECT_EQ(outcome.code, 0) << outcome.text;
  for (const char* name :
       {"scout: ", "scout-fig11", "scout-table1", "scout-fig6", "fluxion: ", "fluxion-table5", "fluxion-fig2",
        "fluxion-fig10", "hgca-fig6", "hgca-fig12", "asyncspade-table2", "asyncspade-fig10"})
    EXPECT_THAT(outcome.text, HasSubstr(name));
}

TEST(Reproduce, ListsEveryTableAndFigureOfThePapers) {
  const cli::Outcome outcome = cli::run("reproduce --list");
  EXPECT_EQ(outcome.code, 0) << outcome.text;
  for (const char* text : {"ScoutAttention\n", "\nLong-context serving\n", "\n  Table 5: ", "\n    reproduced: ",
                           "; simulated\n    tandem reproduce fluxion-table5\n", "\n52 tables and figures: "})
    EXPECT_THAT(outcome.text, HasSubstr(text));
  EXPECT_EQ(cli::run("reproduce scout --list", cli::kOnlyErrors).code, 2);
}

TEST(Reproduce, WhatIsJsonAloneIsNotWrittenIntoAnotherFile) {
  const cli::Outcome outcome = cli::run("reproduce scout-fig6 --out /nowhere/fig6.md", cli::kOnlyErrors);
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.text, HasSubstr("ends in .json"));
}

TEST(Reproduce, ABadNameIsToldAllThatThereAre) {
  for (const auto& [name, near] :
       {std::pair{"asyncspade-tabel2", "Did you mean 'asyncspade-table2'?"},
        std::pair{"fluxion-fig3", "Did you mean 'fluxion-fig2'?"}, std::pair{"scuot", "Did you mean 'scout'?"},
        std::pair{"asyncspade", "called 'asyncspade'"}}) {
    const cli::Outcome outcome = cli::run(std::string("reproduce ") + name, cli::kOnlyErrors);
    EXPECT_EQ(outcome.code, 2) << outcome.text;
    EXPECT_EQ(outcome.text.find('\n'), outcome.text.size() - 1) << outcome.text;
    for (const char* says :
         {near, "asyncspade-fig10", "asyncspade-table2", "fluxion-table5", "scout-fig11", "scout-table1", "fluxion, "})
      EXPECT_THAT(outcome.text, HasSubstr(says)) << name;
    EXPECT_EQ(cli::run(std::string("reproduce ") + name, cli::kOnlyOutput).text, "") << name;
  }
}

}  // namespace
}  // namespace tandem::testing
