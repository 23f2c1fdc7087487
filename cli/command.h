// How subcommands declare their part of the command line, and help as it is printed: lines of at most
// eval::terminal_width() columns, however long the texts of options and examples are. Behind it is CLI11, which only
// command.cc, completion.cc and program.cc include: its header costs g++ 12 six seconds a file (-O2, a core of Zen 4),
// more than most of cli/ does.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "engine/common/error.h"

namespace CLI {  // NOLINT(readability-identifier-naming): CLI11's name
class App;
}

namespace tandem::cli {

/// InputError "--tpot is 0: give milliseconds above 0." where a value is not good.
template <class Type>
void expect(bool good, const char* option, const Type& value, std::string_view give) {
  if (!good) throw_input_error("{} is {}: give {}.", option, value, give);
}

/// The program or one of its subcommands; a handle, as cheap to copy as a pointer.
class Command {
 public:
  explicit Command(CLI::App& app) : app_(&app) {}

  /// `footer`: what its help ends with (format_help).
  Command subcommand(const std::string& name, const std::string& help, const std::string& footer);
  /// One that does nothing itself: one of its own subcommands has to be given.
  Command group(const std::string& name, const std::string& help, const std::string& footer);
  /// What the command does, called when all of the command line was read.
  void callback(std::function<void()> work);

  /// "--name" reads a value into `value`, which has the default that the help shows and must live until callbacks have
  /// run; a name without dashes is a word at its place, or all words there. The type says what can be given: no empty
  /// text and no option's name, whole numbers in digits, as large as the type is, and other numbers that are finite. A
  /// list of texts may be given again, each time with one; one of numbers takes them with commas between. --method,
  /// --length and --context are also read as --methods, --lengths and --contexts, and these as those. --hw and --base
  /// take a part of a profile's name for the name (full_profile_names).
  template <class Type>
  void option(const std::string& name, Type& value, const std::string& help) {
    add(name, &value, help, /*required=*/false);
  }
  /// One that has to be given.
  template <class Type>
  void required(const std::string& name, Type& value, const std::string& help) {
    add(name, &value, help, /*required=*/true);
  }
  void flag(const std::string& name, bool& value, const std::string& help);

  /// Of callbacks: whether the command line has this option.
  bool given(const std::string& name) const;

  /// CLI11's command, for completion.
  const CLI::App& app() const { return *app_; }

 private:
  using Value = std::variant<std::string*, std::uint32_t*, std::uint64_t*, float*, double*,
                             std::optional<std::uint32_t>*, std::optional<std::uint64_t>*, std::optional<double>*,
                             std::vector<std::string>*, std::vector<double>*>;
  void add(const std::string& name, Value value, const std::string& help, bool required);

  CLI::App* app_;
};

/// `text` in lines that end before the terminal's last column where words allow. The first one is to be printed at
/// column `indent`, where the others begin; no newline at the end.
std::string hanging(const std::string& text, std::size_t indent);

/// Sets the help of `app` and of subcommands that are added later, in lines of that width; descriptions hang behind
/// their options. A footer's lines without an indent are paragraphs. Indented ones are examples: the command, two or
/// more spaces, and an explanation.
void format_help(CLI::App& app);

}  // namespace tandem::cli
