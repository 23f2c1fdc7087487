#include "cli/help.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <sstream>

#include "eval/report/table.h"

namespace tandem::cli {
namespace {

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
  std::string make_option(const CLI::Option* option, bool is_positional) const override;
  std::string make_subcommand(const CLI::App* command) const override;
  std::string make_description(const CLI::App* command) const override;
  std::string make_footer(const CLI::App* command) const override;

 private:
  std::string entry(const std::string& name, const std::string& description) const;
};

std::string HelpFormatter::entry(const std::string& name, const std::string& description) const {
  const std::size_t indent = get_column_width();
  std::string line = "  " + name;
  if (!description.empty() && line.size() >= indent) line += "\n" + std::string(indent, ' ');
  if (!description.empty() && line.size() < indent) line.resize(indent, ' ');
  return line + hanging(description, indent) + "\n";
}

std::string HelpFormatter::make_option(const CLI::Option* option, bool is_positional) const {
  return entry(make_option_name(option, is_positional) + make_option_opts(option), make_option_desc(option));
}

std::string HelpFormatter::make_subcommand(const CLI::App* command) const {
  return entry(command->get_display_name(true), command->get_description());
}

std::string HelpFormatter::make_description(const CLI::App* command) const {
  return hanging(CLI::Formatter::make_description(command), 0) + "\n";
}

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

std::string hanging(const std::string& text, std::size_t indent) {
  return broken(text, eval::terminal_width() - indent, "\n" + std::string(indent, ' '));
}

void format_help(CLI::App& app) {
  const auto formatter = std::make_shared<HelpFormatter>();
  formatter->column_width(kColumn);
  app.formatter(formatter);
}

}  // namespace tandem::cli
