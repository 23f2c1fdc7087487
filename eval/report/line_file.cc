#include "eval/report/line_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <map>
#include <unistd.h>

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

/// The temporary file that takes the name of `file` when it is whole.
fs::path part_of(fs::path file) {
  return file += ".new";
}

std::string where(const fs::path& file, std::size_t number) {
  return fmt::format("{}:{}", file.string(), number);
}

void shorten(const fs::path& file, std::uintmax_t bytes) {
  std::error_code error;
  fs::resize_file(file, bytes, error);
  if (error)
    throw_run_error("The file '{}' cannot be shortened to continue the run ({}).", file.string(), error.message());
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
    if (found.wrong.empty()) {
      result.sound.push_back(std::move(found.line));
    } else {
      result.damaged.push_back({std::string(found.bytes), std::move(found.wrong), found.copy});
    }
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

void rewrite_lines(const fs::path& file, const std::vector<Line>& lines) {
  const std::string before = read_if_there(file);
  std::string text;
  for (const Line& line : lines) text += line.text + "\n";
  if (text == before) return;
  if (!before.starts_with(text)) return write_file(file, text);
  shorten(file, text.size());
}

std::vector<Line> set_damaged_aside(const fs::path& file, const LineParser& parse, std::vector<std::string>& repairs) {
  ScannedLines scanned = scan_lines(file, parse);
  if (scanned.damaged.empty()) return std::move(scanned.sound);
  fs::path aside = file;
  aside += ".damaged";
  LineAppender out(aside);
  for (const DamagedLine& line : scanned.damaged) {
    out.append(line.bytes);
    repairs.push_back(fmt::format("{} {} taken out and kept in '{}'{}.", line.what,
                                  line.copy ? "The copy is" : "The line is", aside.string(),
                                  line.copy ? "" : "; its sample is run again"));
  }
  return std::move(scanned.sound);
}

void arrange_lines(const fs::path& file, const LineParser& parse, const std::vector<SampleKey>& order) {
  std::map<SampleKey, std::size_t> rank;
  for (const SampleKey& key : order) rank.emplace(key, rank.size());
  std::vector<Line> lines = read_lines(file, parse);
  std::stable_sort(lines.begin(), lines.end(),
                   [&](const Line& a, const Line& b) { return rank.at(a.key) < rank.at(b.key); });
  rewrite_lines(file, lines);
}

void check_writable(const fs::path& name, const std::string& what) {
  const fs::path part = part_of(linked_file(name));
  std::error_code ignored;
  const bool was_there = fs::exists(part, ignored);  // somebody's: it stays until there is something to write
  std::ofstream out(part, std::ios::binary | std::ios::app);
  if (!out) throw_input_error("{}: '{}' cannot be written ({}).", what, name.string(), std::strerror(errno));
  if (!was_there) fs::remove(part, ignored);
}

void write_file(const fs::path& name, std::string_view text) {
  std::error_code error;
  const fs::path file = linked_file(name), part = part_of(file);
  const auto fail = [&](const fs::path& what, const std::string& why) {
    fs::remove(part, error);
    throw_run_error("The file '{}' cannot be written ({}).", what.string(), why);
  };
  {
    std::ofstream out(part, std::ios::binary | std::ios::trunc);
    out.write(text.data(), static_cast<std::streamsize>(text.size()));
    out.close();
    if (!out) fail(part, std::strerror(errno));
  }
  // Without this, a machine that loses power may keep the new name and not what it names.
  const int descriptor = ::open(part.c_str(), O_WRONLY | O_CLOEXEC);
  const bool kept = descriptor >= 0 && (fsync(descriptor) == 0 || errno == EINVAL || errno == ENOTSUP);
  const int why = errno;
  if (descriptor >= 0) ::close(descriptor);
  if (!kept) fail(part, std::strerror(why));
  fs::rename(part, file, error);
  if (error) fail(file, error.message());
}

LineAppender::LineAppender(fs::path file) : file_(std::move(file)), out_(file_, std::ios::binary | std::ios::app) {
  if (!out_)
    throw_input_error("The file '{}' cannot be written ({}). Choose another folder.", file_.string(),
                      std::strerror(errno));
}

void LineAppender::append(const std::string& line) {
  std::error_code unknown, ignored;
  const std::uintmax_t before = fs::file_size(file_, unknown);
  out_ << line << '\n';
  out_.flush();
  if (out_) return;
  const int why = errno;
  // The stream still holds what it could not write, and would write all of it behind the part that it could as soon as
  // there is room. It is closed while there is none, and the part is cut off.
  out_.close();
  if (!unknown) fs::resize_file(file_, before, ignored);
  throw_run_error("The file '{}' cannot be written ({}).", file_.string(), std::strerror(why));
}

}  // namespace tandem::eval
