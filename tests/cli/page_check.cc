#include "tests/cli/page_check.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <sstream>
#include <utility>

#include "cli/commands.h"
#include "cli/machines.h"
#include "cli/program.h"
#include "cli/task_names.h"
#include "engine/common/error.h"
#include "engine/model/presets.h"
#include "eval/ruler_tasks/ruler.h"
#include "eval/run/option_values.h"
#include "methods/options.h"
#include "methods/registry.h"

namespace tandem::cli {
namespace {

/// Thrown when all of a command line was read, before the command does its work.
struct Parsed {};

/// A method with a file that the reader has.
bool is_readers_own(const std::string& spec) {
  const auto has = [&](const char* text) { return spec.find(text) != std::string::npos; };
  return has("=DIR") || has(".json") || has(".safetensors");
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
  } else if (option == "name" && command == "reproduce") {
    if (const auto names = reproduction_names(); !std::ranges::binary_search(names, value))
      throw_input_error("There is nothing to reproduce called '{}'.", value);
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

void add_examples(const CLI::App& command, std::vector<std::string>& examples) {
  std::istringstream footer(command.get_footer());
  for (const std::string& line : joined_lines(footer)) {
    const std::size_t begin = line.find_first_not_of(' ');
    if (!line.starts_with("  ") || begin == std::string::npos) continue;
    std::string example = line.substr(0, line.find("  ", begin));  // two spaces behind it begin what it does
    if (!tandem_words(example).empty()) examples.push_back(std::move(example));
  }
  for (const CLI::App* inner : command.get_subcommands({})) add_examples(*inner, examples);
}

}  // namespace

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

bool is_bare_name(const Words& words) {
  const std::unique_ptr<CLI::App> app = make_app();
  const CLI::App* command = app.get();
  return std::ranges::all_of(words, [&](const std::string& word) {
    const auto inner = command->get_subcommands([&](const CLI::App* one) { return one->get_name() == word; });
    if (!inner.empty()) command = inner.front();
    return !inner.empty();
  });
}

std::vector<std::string> help_examples() {
  std::vector<std::string> examples;
  add_examples(*make_app(), examples);
  return examples;
}

}  // namespace tandem::cli
