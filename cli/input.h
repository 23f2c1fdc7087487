// Text that a user gives: files, pipes and what is typed.
#pragma once

#include <cstddef>
#include <string>

namespace tandem::cli {

/// More than this is no text that a model of today reads: tokens of the longest contexts there are, many times over.
inline constexpr std::size_t kLongestText = std::size_t{1} << 30;  // bytes

/// All of a file, or of a pipe, which is read once. `what` begins the sentences: "--text 'book.txt'". InputError for
/// what cannot be read or is longer than `most` bytes; Interrupted where a signal arrives first.
std::string read_text(const std::string& file, const std::string& what, std::size_t most = kLongestText);

/// Lines of standard input, as std::getline gives them, but a signal ends the wait for one.
class InputLines {
 public:
  /// False where the input has ended or a signal has arrived. InputError for a line of more than kLongestText bytes,
  /// and for what cannot be read.
  bool next(std::string& line);

 private:
  std::string text_;  // what was read and not yet given
  bool ended_ = false;
};

}  // namespace tandem::cli
