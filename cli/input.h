// Input from files, pipes and the keyboard, and signals, which end a wait for it. ^C and
// SIGTERM set interrupted(): the work in progress asks for it and stops in good order (Interrupted). A second signal
// ends the program at once.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace tandem::cli {

/// From here on SIGINT and SIGTERM set the flag. Signals the parent told us to ignore (nohup) stay ignored. SIGXFSZ is
/// ignored, so that a limit on the size of files is an error like a full disk.
void handle_interrupts();

/// Returns when a read of `descriptor` would not wait: true; or when a signal has arrived, be it before: false.
bool wait_for_input(int descriptor);

/// Bytes. More than this is no text that a model of today reads: tokens of the longest contexts there are, many times
/// over.
inline constexpr std::size_t kLongestText = std::size_t{1} << 30;
/// The same for what says its length only at its end.
inline constexpr std::size_t kLongestStream = std::size_t{64} << 20;

/// Items of a list with commas, as they stand there; an empty text has one empty item.
std::vector<std::string> split_at_commas(const std::string& list);

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
