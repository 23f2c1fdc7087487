// Text that a user gives: files, open pipes and what is typed.
#pragma once

#include <cstddef>
#include <string>

namespace tandem::cli {

/// Bytes. More than this is no text that a model of today reads: tokens of the longest contexts there are, many times
/// over.
inline constexpr std::size_t kLongestText = std::size_t{1} << 30;
/// The same for what says its length only at its end.
inline constexpr std::size_t kLongestStream = std::size_t{64} << 20;

/// All of a regular file, as read_file() has it; or of standard input (/dev/stdin) and a shell's <(command), up to
/// kLongestStream bytes. `what` begins the sentences: "--text 'book.txt'".
std::string read_text(const std::string& file, const std::string& what, std::size_t most = kLongestText);

/// Lines of standard input, as std::getline gives them, but a signal ends the wait for one.
class InputLines {
 public:
  /// False where the input has ended or a signal has arrived. InputError for a line of more than kLongestStream bytes,
  /// and for what cannot be read.
  bool next(std::string& line);

 private:
  std::string text_;  // what was read and not yet given
  bool ended_ = false;
};

}  // namespace tandem::cli
