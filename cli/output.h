// What is printed must arrive: a full disk behind a pipe is an error, not silence. And what is to be written must have
// a place.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fmt/ranges.h>
#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "cli/command.h"
#include "engine/common/error.h"
#include "engine/common/printable.h"
#include "engine/common/version.h"
#include "eval/report/line_file.h"
#include "eval/report/markdown.h"
#include "eval/report/output_folder.h"
#include "eval/report/run_folder.h"

namespace tandem::cli {

/// Prints text in which names may be anybody's: line ends and tabs alone reach the terminal as such. check_stdout()
/// says whether it arrived.
template <class... Arguments>
void print(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  const std::string text = printable_lines(fmt::format(format, std::forward<Arguments>(arguments)...));
  std::fwrite(text.data(), 1, text.size(), stdout);
}

/// Flushes stdout; RunError where it cannot be written.
inline void check_stdout() {
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
    throw_run_error("The output cannot be written ({}).", std::strerror(errno));
}

/// A line of its own on stderr, in one piece, with names as in print(). Where it cannot be written the work goes on all
/// the same: a full disk that a note tells of may be the one that its log lies on.
inline void say(const std::string& line) {
  std::fputs((printable_lines(line) + "\n").c_str(), stderr);
}

inline std::string program_text() {
  return fmt::format("tandem {} ({})", version(), git_commit());
}

/// Help of --json, by which a command prints its result as one JSON document and nothing else.
inline std::string json_help(std::string_view document) {
  return fmt::format("Print {} on standard output in place of the tables; notes and progress stay on standard error",
                     document);
}

/// --out FILE and --force of a command that writes one file.
struct OutFile {
  std::string name;  // empty: none is asked for
  bool force = false;

  void add_to(Command command, const std::string& help) {
    command.option("--out", name, help);
    command.flag("--force", force, "Replace that file");
  }

  /// ".md" of "Gate.MD"; empty where the name has none.
  std::string ending() const {
    std::string text = std::filesystem::path(name).extension().string();
    std::transform(text.begin(), text.end(), text.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
    return text;
  }

  /// Whether the file can be made, before hours are spent on what it will hold. Its name may end in one of `endings`,
  /// with their dots, if there are any, or in none: no file gets text under a name that promises a picture. What the
  /// command reads
  /// (`inputs`) and what a run consists of is not replaced. InputError.
  void check(std::initializer_list<std::string_view> endings, std::span<const std::string> inputs = {}) const {
    if (name.empty()) return;
    const std::string own = ending();
    if (!own.empty() && endings.size() > 0 && std::find(endings.begin(), endings.end(), own) == endings.end())
      throw_input_error("--out is '{}', which ends in none of {}.", name, fmt::join(endings, ", "));
    const std::filesystem::path out(name), folder = out.parent_path();
    std::error_code refused;  // a name that is too long, for example
    if (!folder.empty() && !std::filesystem::is_directory(folder, refused))
      throw_input_error("--out: the folder '{}' does not exist.", folder.string());
    const std::filesystem::file_status status = std::filesystem::status(out, refused);
    if (refused && status.type() != std::filesystem::file_type::not_found)
      throw_input_error("--out: '{}' can be no file: {}.", name, refused.message());
    const bool there = std::filesystem::exists(status);
    if (std::filesystem::is_directory(status)) throw_input_error("--out: '{}' is a folder: name a file.", name);
    // A result replaces the file as a whole, when it is there: a device or a pipe would be replaced, too.
    if (there && !std::filesystem::is_regular_file(status))
      throw_input_error("--out: '{}' is no regular file: name another.", name);
    for (const std::string& input : inputs) {
      std::error_code not_there;
      if (std::filesystem::equivalent(out, input, not_there))
        throw_input_error("--out: '{}' is what this command reads: name another file.", name);
    }
    std::error_code ignored;
    if (there && eval::is_part_of_run(std::filesystem::canonical(out, ignored)))
      throw_input_error("--out: '{}' is a file of the run in that folder: name another.", name);
    if (there && !force) throw_input_error("--out: '{}' exists already; --force replaces it.", name);
    eval::check_writable(out, "--out");
  }

  void write(std::string_view text) const {
    if (!name.empty()) eval::write_file(name, text);
  }

  /// Prints a result, and writes it as JSON or, under another name, as Markdown.
  template <class Result>
  void show(const Result& result, std::string (*text)(const Result&, bool markdown),
            std::string (*json)(const Result&)) const {
    print("{}", text(result, false));
    check_stdout();
    write(ending() == ".json" ? json(result) : text(result, true));
  }
};

/// Makes the folder of --out, or looks at what is there, before anything slow: nobody else writes there meanwhile. The
/// command's file `own` lets other files stay, and `check` is told whether it is there; `derived` follow from it; error
/// sentences call them a `what`. Not held where `out` is empty. InputError.
inline eval::OutputFolder open_report_folder(const std::string& out, bool force, std::string_view own,
                                             std::span<const std::string_view> derived, std::string_view what,
                                             const std::function<void(bool there)>& check) {
  if (out.empty()) {
    if (force) throw_input_error("--force replaces what is in the folder of --out: give it too.");
    return {};
  }
  const std::filesystem::path found = eval::normalised(out);
  std::error_code ignored;
  if (std::filesystem::exists(found, ignored) && !std::filesystem::is_directory(found, ignored))
    throw_input_error("--out: '{}' is a file: name a folder.", out);
  eval::OutputFolder folder = eval::OutputFolder::make(found);
  const bool there = folder.has(std::string(own));
  check(there);
  const auto is_ours = [&](std::string_view name) {
    return name == own || std::find(derived.begin(), derived.end(), name) != derived.end();
  };
  if (!there && !folder.is_free({{}, {}, is_ours}))
    throw_input_error("--out: '{}' has files that are no {}'s: name another folder.", out, what);
  eval::refuse_links(folder.path());
  return folder;
}

/// The folder's report.md, which names its makers. `picture`: a paragraph, or nothing.
inline void write_report(const eval::OutputFolder& folder, const std::string& title, const std::string& picture,
                         const std::string& text, const std::string& command) {
  folder.write("report.md", fmt::format("# {}\n\n{}{}\nMade by {}: {}\n", title, picture, text, program_text(),
                                        eval::markdown_code(command)));
}

}  // namespace tandem::cli
