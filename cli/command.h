// How subcommands declare their part of the command line. Behind it is CLI11, which only command.cc, help.cc and
// main.cc include: its header costs g++ 12 six seconds a file (-O2, a core of Zen 4), more than most of cli/ does.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace CLI {  // NOLINT(readability-identifier-naming): CLI11's name
class App;
class Option;
}  // namespace CLI

namespace tandem::cli {

/// An option of a command; a handle, as cheap to copy as a pointer. What changes it returns it, to be chained.
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}

  Option required();
  /// The help shows the value that the variable has now.
  Option show_default();
  /// Of a list: may be given again, each time with one value. A list without this takes every word behind it.
  Option repeatable();
  /// Of a list: one word may hold several values.
  Option comma_separated();

 private:
  CLI::Option* option_;
};

/// The program or one of its subcommands; a handle, as cheap to copy as a pointer.
class Command {
 public:
  explicit Command(CLI::App& app) : app_(&app) {}

  Command subcommand(const std::string& name, const std::string& help);
  /// One of its subcommands has to be given.
  void require_subcommand();
  /// What the help ends with (cli/help.h).
  void footer(const std::string& text);
  /// What the command does, called when all of the command line was read.
  void callback(std::function<void()> work);

  /// "--name" reads a value into `value`, which has the default and must live until callbacks have run; a name without
  /// dashes is a word at its place. The type says what can be given: no empty text and no option's name, whole numbers
  /// in digits, as large as the type is, and other numbers that are finite.
  Option option(const std::string& name, std::string& value, const std::string& help);
  Option option(const std::string& name, std::uint32_t& value, const std::string& help);
  Option option(const std::string& name, std::uint64_t& value, const std::string& help);
  Option option(const std::string& name, float& value, const std::string& help);
  Option option(const std::string& name, double& value, const std::string& help);
  Option option(const std::string& name, std::optional<std::uint32_t>& value, const std::string& help);
  Option option(const std::string& name, std::optional<std::uint64_t>& value, const std::string& help);
  Option option(const std::string& name, std::optional<double>& value, const std::string& help);
  Option option(const std::string& name, std::vector<std::string>& value, const std::string& help);
  Option option(const std::string& name, std::vector<double>& value, const std::string& help);
  void flag(const std::string& name, bool& value, const std::string& help);

  /// Of callbacks: whether the command line has this option.
  bool given(const std::string& name) const;

 private:
  CLI::App* app_;
};

}  // namespace tandem::cli
