// Every tandem command on a user's page and in a help text is one that the program takes: its subcommand, its options,
// and the names of methods, profiles, shapes and tasks in it. Commands are parsed here and not run.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/machines.h"
#include "cli/program.h"
#include "cli/task_names.h"
#include "engine/common/error.h"
#include "engine/common/paths.h"
#include "engine/model/presets.h"
#include "eval/ruler_tasks/ruler.h"
#include "eval/run/option_values.h"
#include "methods/options.h"
#include "methods/registry.h"

namespace tandem::cli {
namespace {

using Words = std::vector<std::string>;

/// Thrown when all of a command line was read, before the command does its work.
struct Parsed {};

/// The words after `tandem`, or after a path of it; none where that is no command. Variables and mpirun may be before.
Words behind_program(const Words& words) {
  const auto is_program = [](const std::string& word) { return word == "tandem" || word.ends_with("/tandem"); };
  const auto is_setting = [](const std::string& word) { return word.find('=') != std::string::npos; };
  auto at = std::ranges::find_if_not(words, is_setting);
  if (at != words.end() && *at == "mpirun") at = std::find_if(at, words.end(), is_program);
  return at == words.end() || !is_program(*at) ? Words() : Words(at + 1, words.end());
}

/// The command in a shell's line: its words up to a comment, a pipe or a redirection.
Words command_in(const std::string& line) {
  Words words;
  std::string word;
  char quote = 0;
  bool begun = false;
  for (const char c : line + " ;") {
    if (quote != 0 ? c == quote : c == '\'' || c == '"') {
      quote = quote != 0 ? '\0' : c;
      begun = true;
    } else if (quote != 0 || std::string_view(" |<>;&#").find(c) == std::string_view::npos) {
      word += c;
      begun = true;
    } else {
      if (begun) words.push_back(std::exchange(word, {}));
      begun = false;
      if (c == ' ') continue;
      if (const Words command = behind_program(words); !command.empty() || c == '#') return command;
      words.clear();
    }
  }
  return {};
}

/// A method that docs/add_a_method.md makes, or one with a file that the reader has.
bool is_readers_own(const std::string& spec) {
  const auto has = [&](const char* text) { return spec.find(text) != std::string::npos; };
  return spec.starts_with("tail:") || has("=DIR") || has(".json") || has(".safetensors");
}

void check_value(const std::string& command, const std::string& option, const std::string& value) {
  if (option == "--methods" || option == "--method") {
    for (const std::string& spec : split_method_list(value))
      if (!is_readers_own(spec)) make_method(spec);
  } else if (option == "--hw" || option == "--base") {
    for (const std::string& name : eval::split_list(value, option))
      if (!name.ends_with(".json")) load_profiles(name, option);
  } else if (option == "--as") {
    if (value.find('/') == std::string::npos && value != "none") preset_config(value);
  } else if (option == "--tasks" && command == "compare") {
    eval::expand_ruler_tasks(value);
  } else if (option == "--lengths" || option == "--context") {
    eval::parse_lengths(value, option);
  } else if (option == "--device") {
    EXPECT_THAT((Words{"sim", "emu", "cuda"}), ::testing::Contains(value));
  }
}

void check_values(const CLI::App& app) {
  for (const CLI::App* command : app.get_subcommands()) {
    for (const CLI::Option* option : command->get_options())
      for (const std::string& value : option->results()) check_value(command->get_name(), option->get_name(), value);
    check_values(*command);
  }
}

/// An empty text, or why the program would refuse it. `whole`: no option and no value may be missing.
std::string refusal(const Words& words, bool whole) {
  const std::unique_ptr<CLI::App> app = make_app();
  app->parse_complete_callback([] { throw Parsed(); });
  try {
    const Words own = with_own_task_names(words);
    app->parse(Words(own.rbegin(), own.rend()));
  } catch (const Parsed&) {
  } catch (const CLI::Success&) {  // --help
  } catch (const CLI::RequiredError& error) {
    if (whole) return error.what();
  } catch (const CLI::ArgumentMismatch& error) {  // an option without its value
    if (whole) return error.what();
  } catch (const std::exception& error) {
    return error.what();
  }
  try {
    check_values(*app);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

std::vector<std::filesystem::path> pages() {
  std::vector<std::filesystem::path> files = {source_folder() / "README.md", source_folder() / "bench/README.md",
                                              source_folder() / "models/README.md"};
  for (const char* folder : {"docs", "methods", "hardware"})
    for (const auto& entry : std::filesystem::recursive_directory_iterator(source_folder() / folder))
      if (entry.path().extension() == ".md") files.push_back(entry.path());
  return files;
}

/// Lines of which a backslash makes one.
std::vector<std::string> joined_lines(std::istream& text) {
  std::vector<std::string> lines;
  bool goes_on = false;
  for (std::string line; std::getline(text, line);) {
    const bool more = line.ends_with('\\');
    if (more) line.pop_back();
    if (goes_on) {
      lines.back() += line.substr(std::min(line.find_first_not_of(' '), line.size()));
    } else {
      lines.push_back(line);
    }
    goes_on = more;
  }
  return lines;
}

/// The lines of a page's code, and the `tandem ...` in its prose that leave nothing for the reader to fill in.
void read_page(std::istream& text, std::vector<std::string>& code, std::vector<std::string>& spans) {
  bool fenced = false;
  std::string prose;
  for (const std::string& line : joined_lines(text)) {
    if (line.starts_with("```")) fenced = !fenced;
    if (fenced || line.starts_with("    ")) {
      code.push_back(line);
    } else {
      prose += line + " ";
    }
  }
  constexpr std::string_view kBegin = "`tandem ";
  for (std::size_t at = prose.find(kBegin); at != std::string::npos; at = prose.find(kBegin, at + 1)) {
    const std::string span = prose.substr(at + 1, prose.find('`', at + 1) - at - 1);
    if (span.find('<') == std::string::npos && span.find("COMMAND") == std::string::npos) spans.push_back(span);
  }
}

TEST(Pages, EveryCommandIsOneThatTheProgramTakes) {
  std::size_t commands = 0;
  for (const std::filesystem::path& page : pages()) {
    std::ifstream text(page);
    ASSERT_TRUE(text) << page;
    std::vector<std::string> code, spans;
    read_page(text, code, spans);
    for (const auto& [lines, whole] : {std::pair(&code, true), std::pair(&spans, false)}) {
      for (const std::string& line : *lines) {
        const Words words = command_in(line);
        if (words.empty()) continue;
        ++commands;
        EXPECT_EQ(refusal(words, whole), "") << page.string() << ": " << line;
      }
    }
  }
  EXPECT_GT(commands, 90u);
}

void check_examples(const CLI::App& command, std::size_t& examples) {
  std::istringstream footer(command.get_footer());
  for (const std::string& line : joined_lines(footer)) {
    if (!line.starts_with("  ")) continue;
    const std::size_t begin = line.find_first_not_of(' ');  // two spaces behind the command begin what it does
    const Words words = begin == std::string::npos ? Words() : command_in(line.substr(0, line.find("  ", begin)));
    if (words.empty()) continue;
    ++examples;
    EXPECT_EQ(refusal(words, /*whole=*/true), "") << line;
  }
  for (const CLI::App* inner : command.get_subcommands({})) check_examples(*inner, examples);
}

TEST(Pages, SoIsEveryExampleOfTheHelp) {
  std::size_t examples = 0;
  check_examples(*make_app(), examples);
  EXPECT_GT(examples, 60u);
}

TEST(Pages, AWrongCommandIsFound) {
  EXPECT_EQ(command_in("    A=b mpirun -n 2 x/bin/tandem info --hw 'a b'  # why"), (Words{"info", "--hw", "a b"}));
  EXPECT_EQ(command_in("printf 'a\\nb' | tandem generate --chat <in >out"), (Words{"generate", "--chat"}));
  EXPECT_EQ(command_in("cmake --build build --target tandem all"), Words());
  EXPECT_EQ(refusal({"compare", "--methods", "full,quest:budget=64", "--hw", "h100"}, true), "");
  for (const Words& wrong : {Words{"compar"}, Words{"compare", "--method", "ful"}, Words{"compare", "--hw", "h101"},
                             Words{"compare", "--sample", "1"}, Words{"compare", "--tasks", "niahs"},
                             Words{"compare", "--lengths", "4Q"}, Words{"simulate", "--as", "llama-9"}, Words{"gate"}})
    EXPECT_NE(refusal(wrong, true), "") << wrong[0];
}

}  // namespace
}  // namespace tandem::cli
