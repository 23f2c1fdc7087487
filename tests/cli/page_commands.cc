#include "tests/cli/page_commands.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "engine/common/paths.h"

namespace tandem::cli {
namespace {

Words behind_program(const Words& words) {
  const auto is_program = [](const std::string& word) { return word == "tandem" || word.ends_with("/tandem"); };
  const auto is_setting = [](const std::string& word) { return word.find('=') != std::string::npos; };
  auto at = std::ranges::find_if_not(words, is_setting);
  if (at != words.end() && *at == "mpirun") at = std::find_if(at, words.end(), is_program);
  return at == words.end() || !is_program(*at) ? Words() : Words(at + 1, words.end());
}

/// Simple commands of a line of shell, each as its words.
std::vector<Words> simple_commands(const std::string& line) {
  std::vector<Words> commands(1);
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
      if (begun) commands.back().push_back(std::exchange(word, {}));
      begun = false;
      if (c == '#') break;
      if (c != ' ') commands.emplace_back();
    }
  }
  return commands;
}

/// A line of code as a command. Its comment begins at a '#' behind a space; no page has one in quotes.
PageCommand as_command(const std::string& code) {
  const std::size_t begin = code.find_first_not_of(' ');
  const std::size_t comment = (" " + code).find(" #");
  const std::string text = code.substr(0, comment).substr(std::min(begin, code.size()));
  return {.text = text.substr(0, text.find_last_not_of(' ') + 1),
          .comment = comment == std::string::npos ? "" : code.substr(comment)};
}

/// Whether a span of prose names a program with arguments that leave nothing for the reader to fill in.
bool is_command(const std::string& span) {
  const Words words = shell_words(span);
  if (words.size() < 2 || span.find('<') != std::string::npos || span.find("COMMAND") != std::string::npos)
    return false;
  const std::string& program = words[words[0].find('=') == std::string::npos ? 0 : 1];
  return program == "tandem" || program == "tandem-probe" || program == "cmake" || program == "ctest" ||
         program == "python3" || program.starts_with("build/") || program.ends_with(".sh") || program.ends_with(".py");
}

}  // namespace

std::vector<std::string> page_names() {
  std::vector<std::string> names = {"README.md", "bench/README.md", "models/README.md"};
  for (const char* folder : {"docs", "methods", "hardware"})
    for (const auto& entry : std::filesystem::recursive_directory_iterator(source_folder() / folder))
      if (entry.path().extension() == ".md")
        names.push_back(std::filesystem::relative(entry.path(), source_folder()).string());
  std::ranges::sort(names);
  return names;
}

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

std::vector<PageCommand> commands_of(std::istream& page) {
  std::vector<PageCommand> commands;
  bool fenced = false;
  std::string prose;  // since the last code; a span may be broken over two lines
  const auto take_spans = [&] {
    for (std::size_t at = prose.find('`'); at != std::string::npos; at = prose.find('`', at)) {
      const std::size_t end = std::min(prose.find('`', at + 1), prose.size());
      const std::string span = prose.substr(at + 1, end - at - 1);
      if (is_command(span)) commands.push_back({.text = span, .comment = "", .in_prose = true});
      at = std::min(end + 1, prose.size());
    }
    prose.clear();
  };
  for (const std::string& line : joined_lines(page)) {
    const std::size_t begin = std::min(line.find_first_not_of(' '), line.size());
    if (line.compare(begin, 3, "```") == 0) {
      fenced = !fenced;
      continue;
    }
    if (fenced ? !tandem_words(line).empty() : line.starts_with("    ")) {
      take_spans();
      if (line[begin] != '#') commands.push_back(as_command(line));
    } else if (!fenced) {
      prose += line + " ";
      if (line.empty()) take_spans();
    }
  }
  take_spans();
  return commands;
}

std::vector<PageCommand> commands_of(const std::string& page_name) {
  std::ifstream page(source_folder() / page_name);
  if (!page) throw std::runtime_error("test cannot read " + page_name);
  return commands_of(page);
}

Words shell_words(const std::string& line) {
  return simple_commands(line).front();
}

Words tandem_words(const std::string& line) {
  for (const Words& words : simple_commands(line))
    if (Words command = behind_program(words); !command.empty()) return command;
  return {};
}

}  // namespace tandem::cli
