// Help as it is printed: lines of at most eval::kTerminalWidth columns, however long the texts of options and examples
// are.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace tandem::cli {

/// `text` in lines that end before the terminal's last column where words allow. The first one is to be printed at
/// column `indent`, where the others begin; no newline at the end.
std::string hanging(const std::string& text, std::size_t indent);

/// What CLI11 prints, in lines of that width: a description hangs behind its option. Of a footer, lines without an
/// indent are paragraphs, those with one examples, with what they do two or more spaces behind the command.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_option(const CLI::Option* option, bool is_positional) const override;
  std::string make_subcommand(const CLI::App* command) const override;
  std::string make_description(const CLI::App* command) const override;
  std::string make_footer(const CLI::App* command) const override;

 private:
  std::string entry(const std::string& name, const std::string& description) const;
};

}  // namespace tandem::cli
