// Commands on the pages for users. Indented blocks hold commands, fenced ones code and output; a span of prose can be a
// command, too.
#pragma once

#include <istream>
#include <string>
#include <vector>

namespace tandem::cli {

using Words = std::vector<std::string>;

struct PageCommand {
  std::string text;       // one line; the backslashes that broke it are gone
  std::string comment;    // behind it, with its '#'
  bool in_prose = false;  // a span, which may be a mere name
};

/// README.md and the Markdown files of docs/, methods/, hardware/, and those of bench/ and models/; paths in the
/// repository, sorted.
std::vector<std::string> page_names();

/// Commands in the order of the page.
std::vector<PageCommand> commands_of(std::istream& page);
std::vector<PageCommand> commands_of(const std::string& page_name);

/// Lines of which a backslash makes one.
std::vector<std::string> joined_lines(std::istream& text);

/// The words of a line of shell up to a comment, a pipe or a redirection.
Words shell_words(const std::string& line);

/// The words after `tandem`, or after a path of it, in a line of shell; none where it runs something else. Variables
/// and mpirun may be before.
Words tandem_words(const std::string& line);

}  // namespace tandem::cli
