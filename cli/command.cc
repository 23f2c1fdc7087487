#include "cli/command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <limits>
#include <memory>
#include <sstream>
#include <type_traits>
#include <utility>

#include "cli/machines.h"
#include "eval/report/table.h"
#include "eval/run/option_values.h"

namespace tandem::cli {
namespace {

/// The type of one value of an option: what an optional one or a list holds.
template <class Type>
struct One {
  using type = Type;
};
template <class Type>
struct One<std::optional<Type>> {
  using type = Type;
};
template <class Type>
struct One<std::vector<Type>> {
  using type = Type;
};

/// An option's name with the one that other commands, which take one value or several, have for it.
std::string with_other_name(const std::string& name) {
  for (const std::string& one : {std::string("--method"), std::string("--length"), std::string("--context")}) {
    if (name == one) return name + "," + one + "s";
    if (name == one + "s") return name + "," + one;
  }
  return name;
}

/// Options whose values are hardware profiles, in every command that has them.
bool names_profiles(std::string_view name) {
  return name == "--hw" || name == "--base";
}

/// Rejects empty texts, which CLI11 would take for an option that was not given, and the option that follows where a
/// value was forgotten, which it would take for the value.
void check_text(const CLI::App& app, CLI::Option* option) {
  option->check(
      [&app, name = option->get_name()](const std::string& value) {
        if (value.empty()) throw_input_error("{} is empty: give a value, or leave it away.", name);
        if (value.starts_with('-') && app.get_option_no_throw(value) != nullptr)
          throw_input_error("{} has no value: '{}' is an option of its own.", name, value);
        return std::string();
      },
      "");
}

/// CLI11 would take 010 for 8, what is beyond 64 bits for the largest number, and an empty text, which is what a
/// script's unset variable gives, for 0.
template <class Number>
void check_number(CLI::Option* option) {
  option->transform(
      [name = option->get_name()](const std::string& value) {
        if constexpr (std::is_integral_v<Number>)
          return std::to_string(eval::parse_count(value, name, 0, std::numeric_limits<Number>::max()));
        eval::parse_real(value, name);
        return value;
      },
      "");
}

constexpr std::size_t kColumn = 28;    // where descriptions of options begin
constexpr std::size_t kFarRight = 32;  // columns: what begins nearer to the right edge has no room to hang there
constexpr std::size_t kBelow = 6;      // columns: indent of what stands below its command

/// `text` in lines of `width`, with `between` them.
std::string broken(const std::string& text, std::size_t width, const std::string& between) {
  std::string out;
  for (const char c : eval::wrap(text, width)) out += c == '\n' ? between : std::string(1, c);
  return out;
}

/// An indented line of a footer. A command that is too long goes on behind a backslash, so that it can be copied.
std::string example(const std::string& line) {
  if (eval::text_columns(line) <= eval::terminal_width()) return line;
  const std::size_t begin = line.find_first_not_of(' ');
  const std::size_t gap = std::min(line.find("  ", begin), line.size());
  const std::size_t comment = line.find_first_not_of(' ', gap);
  if (begin > kBelow) return line.substr(0, begin) + hanging(line.substr(begin), begin);
  if (comment != std::string::npos && comment + kFarRight <= eval::terminal_width())
    return line.substr(0, comment) + hanging(line.substr(comment), comment);
  const std::string below(kBelow, ' ');
  const std::string command =
      broken(line.substr(begin, gap - begin), eval::terminal_width() - kBelow - 2, " \\\n" + below);
  const std::string does = comment == std::string::npos ? "" : "\n" + below + hanging(line.substr(comment), kBelow);
  return line.substr(0, begin) + command + does;
}

class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    // Without with_other_name()'s.
    const std::string name =
        option->get_lnames().size() > 1 ? option->get_name() : make_option_name(option, is_positional);
    return entry(name + make_option_opts(option), make_option_desc(option));
  }
  std::string make_subcommand(const CLI::App* command) const override {
    return entry(command->get_display_name(true), command->get_description());
  }
  std::string make_description(const CLI::App* command) const override {
    return hanging(CLI::Formatter::make_description(command), 0) + "\n";
  }
  std::string make_footer(const CLI::App* command) const override;

 private:
  std::string entry(const std::string& name, const std::string& description) const {
    const std::size_t indent = get_column_width();
    std::string line = "  " + name;
    if (!description.empty() && line.size() >= indent) line += "\n" + std::string(indent, ' ');
    if (!description.empty() && line.size() < indent) line.resize(indent, ' ');
    return line + hanging(description, indent) + "\n";
  }
};

std::string HelpFormatter::make_footer(const CLI::App* command) const {
  std::istringstream lines(command->get_footer());
  std::string out, paragraph;
  const auto end_paragraph = [&] {
    if (!paragraph.empty()) out += hanging(paragraph, 0) + "\n";
    paragraph.clear();
  };
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty() && line[0] != ' ') {
      paragraph += (paragraph.empty() ? "" : " ") + line;
      continue;
    }
    end_paragraph();
    out += (line.empty() ? line : example(line)) + "\n";
  }
  end_paragraph();
  return out;
}

}  // namespace

Command Command::subcommand(const std::string& name, const std::string& help, const std::string& footer) {
  CLI::App* command = app_->add_subcommand(name, help);
  command->footer(footer);
  return Command(*command);
}

Command Command::group(const std::string& name, const std::string& help, const std::string& footer) {
  const Command command = subcommand(name, help, footer);
  command.app_->require_subcommand(1);
  return command;
}

void Command::callback(std::function<void()> work) {
  app_->callback(std::move(work));
}

void Command::add(const std::string& name, Value value, const std::string& help, bool required) {
  std::visit(
      [&](auto* to) {
        using Type = std::remove_pointer_t<decltype(to)>;
        using Single = typename One<Type>::type;
        CLI::Option* option = app_->add_option(with_other_name(name), *to, help)->required(required);
        if constexpr (std::is_same_v<Single, std::string>) {
          check_text(*app_, option);
          if (names_profiles(name)) option->transform(full_profile_names, "");
        } else {
          check_number<Single>(option);
        }
        if constexpr (std::is_same_v<Type, std::vector<double>>) option->delimiter(',');
        if constexpr (std::is_same_v<Type, std::vector<std::string>>) {
          if (name.starts_with('-'))
            option->expected(1)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)->allow_extra_args(false);
        } else if constexpr (!std::is_same_v<Type, std::optional<Single>>) {
          option->capture_default_str();
        }
      },
      value);
}

void Command::flag(const std::string& name, bool& value, const std::string& help) {
  app_->add_flag(name, value, help);
}

bool Command::given(const std::string& name) const {
  return app_->count(name) > 0;
}

std::string hanging(const std::string& text, std::size_t indent) {
  return broken(text, eval::terminal_width() - indent, "\n" + std::string(indent, ' '));
}

void format_help(CLI::App& app) {
  const auto formatter = std::make_shared<HelpFormatter>();
  formatter->column_width(kColumn);
  app.formatter(formatter);
}

}  // namespace tandem::cli
