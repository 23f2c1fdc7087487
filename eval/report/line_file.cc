#include "eval/report/line_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <map>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "engine/common/error.h"
#include "engine/common/read_file.h"

namespace tandem::eval {
namespace {

namespace fs = std::filesystem;

/// What a link names is replaced, not the link; it need not be there yet.
fs::path linked_file(fs::path file) {
  std::error_code error;
  for (int links = 0; links < 16 && fs::is_symlink(file, error); ++links) {
    const fs::path target = fs::read_symlink(file, error);
    file = target.is_absolute() ? target : file.parent_path() / target;
  }
  return file;
}

/// A name that is free for the temporary file beside `file`.
fs::path part_of(const fs::path& file) {
  std::error_code error;
  for (int i = 1;; ++i) {
    fs::path part = file;
    part += i == 1 ? ".new" : fmt::format(".new{}", i);
    if (!fs::exists(fs::symlink_status(part, error))) return part;
  }
}

std::string where(const fs::path& file, std::size_t number) {
  return fmt::format("{}:{}", file.string(), number);
}

/// Whether all was written; errno says why not.
bool write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

ScannedLines scan_text(std::string_view text, const fs::path& file, const LineParser& parse) {
  struct Found {
    std::string_view bytes;
    Line line;
    std::string wrong;  // empty for a sound line
    bool copy = false;
  };
  std::vector<Found> all;
  std::map<SampleKey, std::size_t> first;
  for (std::size_t end; (end = text.find('\n')) != std::string_view::npos; text.remove_prefix(end + 1)) {
    Found found{text.substr(0, end), {}, {}, false};
    const std::string here = where(file, all.size() + 1);
    try {
      found.line = parse(found.bytes, here);
      const auto [at, inserted] = first.emplace(found.line.key, all.size());
      if (!inserted) {
        Found& earlier = all[at->second];
        const bool same = earlier.line.text == found.line.text;
        found.copy = same && earlier.wrong.empty();
        found.wrong = fmt::format("{}: the same sample is already on line {}{}.", here, at->second + 1,
                                  same ? "" : ", where something else is said about it");
        if (!same && earlier.wrong.empty())
          earlier.wrong = fmt::format("{}: line {} says something else about the same sample.",
                                      where(file, at->second + 1), all.size() + 1);
      }
    } catch (const InputError& error) {
      found.wrong = error.what();
    }
    all.push_back(std::move(found));
  }
  ScannedLines result;
  for (Found& found : all) {
    if (found.wrong.empty())
      result.sound.push_back(std::move(found.line));
    else
      result.damaged.push_back({std::string(found.bytes), std::move(found.wrong), found.copy});
  }
  return result;
}

}  // namespace

std::string read_if_there(const fs::path& file) {
  if (!path_exists(file)) return {};
  return read_file(file, kMostOfData, fmt::format("The file '{}'", file.string()));
}

ScannedLines scan_lines(const fs::path& file, const LineParser& parse) {
  return scan_text(read_if_there(file), file, parse);
}

std::vector<Line> read_lines(const fs::path& file, const LineParser& parse) {
  const std::string text = read_if_there(file);
  ScannedLines scanned = scan_text(text, file, parse);
  if (!scanned.damaged.empty()) throw InputError(scanned.damaged.front().what);
  if (!text.empty() && text.back() != '\n')
    throw_input_error("{}: the last line is not finished: the run was interrupted. Continue it with --resume.",
                      where(file, scanned.sound.size() + 1));
  return std::move(scanned.sound);
}

void rewrite_lines(const OutputFolder& folder, const std::string& name, const std::vector<Line>& lines) {
  const fs::path file = folder.path() / name;
  const std::string before = read_if_there(file);
  std::string text;
  for (const Line& line : lines) text += line.text + "\n";
  if (text == before) return;
  if (!before.starts_with(text)) return folder.write(name, text);
  const Descriptor out(openat(folder.descriptor(), name.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!out.is_open() || ftruncate(out.number(), static_cast<off_t>(text.size())) != 0)
    throw_run_error("The file '{}' cannot be shortened to continue the run ({}).", file.string(), std::strerror(errno));
}

std::vector<Line> set_damaged_aside(const OutputFolder& folder, const std::string& name, const LineParser& parse,
                                    std::vector<std::string>& repairs) {
  ScannedLines scanned = scan_lines(folder.path() / name, parse);
  if (scanned.damaged.empty()) return std::move(scanned.sound);
  const std::string aside = name + ".damaged";
  LineAppender out(folder, aside);
  for (const DamagedLine& line : scanned.damaged) {
    out.append(line.bytes);
    repairs.push_back(fmt::format("{} {} taken out and kept in '{}'{}.", line.what,
                                  line.copy ? "The copy is" : "The line is", (folder.path() / aside).string(),
                                  line.copy ? "" : "; its sample is run again"));
  }
  return std::move(scanned.sound);
}

void arrange_lines(const OutputFolder& folder, const std::string& name, const LineParser& parse,
                   const std::vector<SampleKey>& order) {
  std::map<SampleKey, std::size_t> rank;
  for (const SampleKey& key : order) rank.emplace(key, rank.size());
  std::vector<Line> lines = read_lines(folder.path() / name, parse);
  std::ranges::stable_sort(lines, [&](const Line& a, const Line& b) { return rank.at(a.key) < rank.at(b.key); });
  rewrite_lines(folder, name, lines);
}

void check_writable(const fs::path& name, const std::string& what) {
  const fs::path part = part_of(linked_file(name));
  const Descriptor out(::open(part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!out.is_open()) throw_input_error("{}: '{}' cannot be written ({}).", what, name.string(), std::strerror(errno));
  unlink(part.c_str());
}

void write_new(int folder, const std::string& name, const fs::path& shown, std::string_view text) {
  unlinkat(folder, name.c_str(), 0);
  const Descriptor out(openat(folder, name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666));
  // Without fsync, a machine that loses power may keep the new name and not what it names.
  if (out.is_open() && write_all(out.number(), text) &&
      (fsync(out.number()) == 0 || errno == EINVAL || errno == ENOTSUP))
    return;
  const int why = errno;
  if (out.is_open()) unlinkat(folder, name.c_str(), 0);
  throw_run_error("The file '{}' cannot be written ({}).", shown.string(), std::strerror(why));
}

void write_file(const fs::path& name, std::string_view text) {
  std::error_code error;
  const fs::path file = linked_file(name), part = part_of(file);
  write_new(AT_FDCWD, part.string(), file, text);
  fs::rename(part, file, error);
  if (!error) return;
  unlink(part.c_str());
  throw_run_error("The file '{}' cannot be written ({}).", file.string(), error.message());
}

LineAppender::LineAppender(const OutputFolder& folder, const std::string& name)
    : file_(folder.path() / name),
      out_(openat(folder.descriptor(), name.c_str(),
                  O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666)) {
  struct stat status {};
  int why = !out_.is_open() || fstat(out_.number(), &status) != 0 ? errno : 0;
  if (why == 0 && !S_ISREG(status.st_mode)) why = EINVAL;
  if (why != 0)
    throw_input_error("The file '{}' cannot be written ({}). Choose another folder.", file_.string(),
                      std::strerror(why));
  bytes_ = static_cast<std::uint64_t>(status.st_size);
}

void LineAppender::append(const std::string& text) {
  TANDEM_CHECK(out_.is_open(), "{} is closed", file_.string());
  struct stat status {};
  if (fstat(out_.number(), &status) != 0 || status.st_nlink == 0)
    throw FolderLost(fmt::format(
        "The file '{}' was removed while it was being written. Where manifest.json is still there, --resume runs again "
        "what is missing.",
        file_.string()));
  if (static_cast<std::uint64_t>(status.st_size) != bytes_)
    throw FolderLost(fmt::format(
        "The file '{}' was changed by somebody else while it was being written. --resume runs again what is missing.",
        file_.string()));
  if (write_all(out_.number(), text + "\n")) {
    bytes_ += text.size() + 1;
    return;
  }
  const int why = errno;
  // Where even that fails, the part is a line without an end, which resume() cuts off.
  [[maybe_unused]] const int cut = ftruncate(out_.number(), status.st_size);
  close();
  throw_run_error("The file '{}' cannot be written ({}).", file_.string(), std::strerror(why));
}

}  // namespace tandem::eval
