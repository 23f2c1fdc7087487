// Help as it is printed: lines of at most eval::terminal_width() columns, however long the texts of options and
// examples are.
#pragma once

#include <cstddef>
#include <string>

namespace CLI {  // NOLINT(readability-identifier-naming): CLI11's name
class App;
}

namespace tandem::cli {

/// `text` in lines that end before the terminal's last column where words allow. The first one is to be printed at
/// column `indent`, where the others begin; no newline at the end.
std::string hanging(const std::string& text, std::size_t indent);

/// What CLI11 prints of `app` and of the subcommands that it gets from here on, in lines of that width: a description
/// hangs behind its option. Of a footer, lines without an indent are paragraphs, those with one examples, with what
/// they do two or more spaces behind the command.
void format_help(CLI::App& app);

}  // namespace tandem::cli
