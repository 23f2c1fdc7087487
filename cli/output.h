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

#include "engine/common/error.h"
#include "engine/common/printable.h"
#include "eval/report/line_file.h"
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

/// Whether --out can become a file, before hours are spent on what it will hold; empty: none is asked for. What the
/// command reads (`inputs`) and what a run consists of is not replaced. InputError.
inline void check_new_file(const std::string& file, bool force, std::span<const std::string> inputs = {}) {
  if (file.empty()) return;
  const std::filesystem::path out(file), folder = out.parent_path();
  std::error_code refused;  // a name that is too long, for example
  if (!folder.empty() && !std::filesystem::is_directory(folder, refused))
    throw_input_error("--out: the folder '{}' does not exist.", folder.string());
  const std::filesystem::file_status status = std::filesystem::status(out, refused);
  if (refused && status.type() != std::filesystem::file_type::not_found)
    throw_input_error("--out: '{}' can be no file: {}.", file, refused.message());
  const bool there = std::filesystem::exists(status);
  if (std::filesystem::is_directory(status)) throw_input_error("--out: '{}' is a folder: name a file.", file);
  // A result replaces the file as a whole, when it is there: a device or a pipe would be replaced, too.
  if (there && !std::filesystem::is_regular_file(status))
    throw_input_error("--out: '{}' is no regular file: name another.", file);
  for (const std::string& input : inputs) {
    std::error_code not_there;
    if (std::filesystem::equivalent(out, input, not_there))
      throw_input_error("--out: '{}' is what this command reads: name another file.", file);
  }
  std::error_code ignored;
  if (there && eval::is_part_of_run(std::filesystem::canonical(out, ignored)))
    throw_input_error("--out: '{}' is a file of the run in that folder: name another.", file);
  if (there && !force) throw_input_error("--out: '{}' exists already; --force replaces it.", file);
  eval::check_writable(out, "--out");
}

/// Files of a report in the folder of --out: the one that makes the folder the command's, those that follow from it,
/// and what error sentences call them: "sweep".
struct ReportFiles {
  std::string_view own;
  std::span<const std::string_view> derived;
  std::string_view what;
};

/// Makes the folder of --out, or looks at what is there, before anything slow: nobody else writes there meanwhile. The
/// command's own file lets other files stay, and `check` is told whether it is there. InputError.
inline eval::OutputFolder open_report_folder(const std::string& out, const ReportFiles& files,
                                             const std::function<void(bool there)>& check) {
  const std::filesystem::path found = eval::normalised(out);
  std::error_code ignored;
  if (std::filesystem::exists(found, ignored) && !std::filesystem::is_directory(found, ignored))
    throw_input_error("--out: '{}' is a file: name a folder.", out);
  eval::OutputFolder folder = eval::OutputFolder::make(found);
  const bool there = folder.has(std::string(files.own));
  check(there);
  const eval::FileSet own = {{}, {}, [&](std::string_view name) {
                               return name == files.own || std::find(files.derived.begin(), files.derived.end(),
                                                                     name) != files.derived.end();
                             }};
  if (!there && !folder.is_free(own))
    throw_input_error("--out: '{}' has files that are no {}'s: name another folder.", out, files.what);
  eval::refuse_links(folder.path());
  return folder;
}

/// ".md" of "Gate.MD"; empty where a name has none.
inline std::string ending_of(const std::string& file) {
  std::string ending = std::filesystem::path(file).extension().string();
  std::transform(ending.begin(), ending.end(), ending.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return ending;
}

/// InputError where a file's name ends in something that says another format than `endings`, with their dots: no file
/// gets text under a name that promises a picture.
inline void check_ending(const std::string& file, std::initializer_list<std::string_view> endings) {
  const std::string ending = ending_of(file);
  if (ending.empty() || std::find(endings.begin(), endings.end(), ending) != endings.end()) return;
  throw_input_error("--out is '{}', which ends in none of {}.", file, fmt::join(endings, ", "));
}

}  // namespace tandem::cli
