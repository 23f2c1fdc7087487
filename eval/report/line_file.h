// Files of one line per finished sample: appends whole lines, and tells sound lines from damaged ones.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "eval/report/output_folder.h"
#include "eval/report/schema.h"

namespace tandem::eval {

struct Line {
  SampleKey key;
  std::string text;  // as this program writes it, without the newline
};

/// Throws an InputError that begins with `where` ("samples.jsonl:12") for a line that is not sound.
using LineParser = std::function<Line(std::string_view bytes, const std::string& where)>;

struct DamagedLine {
  std::string bytes;  // as they were found, without the newline
  std::string what;   // a sentence: file, line, what is wrong
  bool copy = false;  // it only says again what a sound line says
};

struct ScannedLines {
  std::vector<Line> sound;  // in the file's order, one per key
  std::vector<DamagedLine> damaged;
};

/// All lines that end with a newline; without a file, none. A line that says the same as an earlier one is damaged;
/// where two say different things about one sample, both are. What follows the last newline is left out.
ScannedLines scan_lines(const std::filesystem::path& file, const LineParser& parse);

/// The same, where anything but sound lines is an InputError.
std::vector<Line> read_lines(const std::filesystem::path& file, const LineParser& parse);

/// The sound lines of a file. Moves damaged ones to "<name>.damaged" (or RunError), each with a sentence in `repairs`.
std::vector<Line> set_damaged_aside(const OutputFolder& folder, const std::string& name, const LineParser& parse,
                                    std::vector<std::string>& repairs);

/// Puts the lines into the order of their keys, which has them all. Throws as read_lines() and rewrite_lines().
void arrange_lines(const OutputFolder& folder, const std::string& name, const LineParser& parse,
                   const std::vector<SampleKey>& order);

/// Makes the file hold these lines alone, in one step: by shortening it where it begins with them (on a full disk too),
/// else by replacing it. RunError where that fails; the file is as it was then.
void rewrite_lines(const OutputFolder& folder, const std::string& name, const std::vector<Line>& lines);

/// Replaces `file` by way of a temporary file beside it, which reaches the disk first. RunError when that fails; an
/// earlier file is as it was then.
void write_file(const std::filesystem::path& file, std::string_view text);

/// Makes or replaces the file `name` in the folder of a descriptor (or AT_FDCWD), and waits until it is on the disk.
/// RunError that names the file `shown`; there is no such file then.
void write_new(int folder, const std::string& name, const std::filesystem::path& shown, std::string_view text);

/// A file's bytes; none where there is no such file. InputError where it cannot be read.
std::string read_if_there(const std::filesystem::path& file);

/// Whether write_file() could begin now; InputError that begins with `what` where the temporary file cannot be made.
void check_writable(const std::filesystem::path& file, const std::string& what);

/// Appends lines, each written at once. A line that cannot be written whole is cut off again, and ends the appending.
class LineAppender {
 public:
  LineAppender() = default;
  /// Makes the file where it is missing. InputError where it cannot be written.
  LineAppender(const OutputFolder& folder, const std::string& name);
  std::uint64_t bytes() const { return bytes_; }  // in the file
  /// A line, or several with newlines between. RunError on a full disk; FolderLost where somebody changed the file.
  void append(const std::string& text);
  void close() { out_ = Descriptor(); }

 private:
  std::filesystem::path file_;
  Descriptor out_;
  std::uint64_t bytes_ = 0;
};

}  // namespace tandem::eval
