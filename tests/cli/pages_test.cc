// Every tandem command on a user's page and in a help text is one that the program takes: its subcommand, its options,
// and the names of methods, profiles, shapes and tasks in it. Commands are parsed here; pages_run_test.cc runs those of
// the pages.
#include <gtest/gtest.h>
#include <string>

#include "eval/reproduce/items.h"
#include "tests/cli/page_check.h"
#include "tests/cli/page_commands.h"

namespace tandem::cli {
namespace {

TEST(Pages, EveryCommandIsOneThatTheProgramTakes) {
  std::size_t commands = 0;
  for (const std::string& page : page_names()) {
    for (const PageCommand& command : commands_of(page)) {
      const Words words = tandem_words(command.text);
      if (words.empty()) continue;
      ++commands;
      EXPECT_EQ(refusal(words, /*whole=*/!command.in_prose), "") << page << ": " << command.text;
    }
  }
  EXPECT_GT(commands, 90u);
}

TEST(Pages, SoIsEveryExampleOfTheHelp) {
  const std::vector<std::string> examples = help_examples();
  EXPECT_GT(examples.size(), 60u);
  for (const std::string& example : examples) EXPECT_EQ(refusal(tandem_words(example), /*whole=*/true), "") << example;
}

TEST(Pages, SoIsEveryCommandOfAPapersItem) {
  for (const eval::Item& item : eval::load_items()) {
    if (item.command.empty()) continue;
    EXPECT_EQ(refusal(shell_words(item.command), /*whole=*/true), "") << item.source << ", " << item.name;
  }
}

TEST(Pages, AWrongCommandIsFound) {
  EXPECT_EQ(tandem_words("    A=b mpirun -n 2 x/bin/tandem info --hw 'a b'  # why"), (Words{"info", "--hw", "a b"}));
  EXPECT_EQ(tandem_words("printf 'a\\nb' | tandem generate --chat <in >out"), (Words{"generate", "--chat"}));
  EXPECT_EQ(tandem_words("cmake --build build --target tandem all"), Words());
  EXPECT_EQ(refusal({"compare", "--methods", "full,quest:budget=64", "--hw", "h100"}, true), "");
  for (const Words& wrong :
       {Words{"compar"}, Words{"compare", "--method", "ful"}, Words{"compare", "--hw", "h101"},
        Words{"compare", "--sample", "1"}, Words{"compare", "--tasks", "niahs"}, Words{"compare", "--lengths", "4Q"},
        Words{"simulate", "--as", "llama-9"}, Words{"reproduce", "scout-fig3"}, Words{"gate"}})
    EXPECT_NE(refusal(wrong, true), "") << wrong[0];
}

}  // namespace
}  // namespace tandem::cli
