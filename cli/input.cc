#include "cli/input.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "cli/interrupt.h"
#include "engine/common/error.h"
#include "engine/common/read_file.h"

namespace tandem::cli {
namespace {

enum class Got : std::uint8_t { bytes, end, interrupted, error };

/// Waits for bytes and appends those that come, at most as many as `piece` holds.
Got append(int descriptor, std::vector<char>& piece, std::string& text) {
  for (;;) {
    if (!wait_for_input(descriptor)) return Got::interrupted;
    const ssize_t n = read(descriptor, piece.data(), piece.size());
    if (n > 0) text.append(piece.data(), static_cast<std::size_t>(n));
    if (n >= 0) return n > 0 ? Got::bytes : Got::end;
    if (errno != EINTR && errno != EAGAIN) return Got::error;
  }
}

/// What was open before it was named: standard input as /dev/stdin, or a shell's <(command), which is a pipe without a
/// place in any folder. A pipe in a folder may have no writer, ever.
bool is_open_stream(int descriptor) {
  struct stat status {};
  struct statfs system {};
  if (fstat(descriptor, &status) == 0 && S_ISFIFO(status.st_mode))
    return fstatfs(descriptor, &system) == 0 && system.f_type == PIPEFS_MAGIC;
  return isatty(descriptor) != 0;
}

}  // namespace

std::string read_text(const std::string& file, const std::string& what, std::size_t most) {
  const int descriptor = open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0 || !is_open_stream(descriptor)) {
    if (descriptor >= 0) close(descriptor);
    return read_file(file, most, what);
  }
  most = std::min(most, kLongestStream);
  std::string text;
  std::vector<char> piece(std::size_t{1} << 20);
  Got got = Got::bytes;
  while (got == Got::bytes && text.size() <= most) got = append(descriptor, piece, text);
  const int error = errno;
  close(descriptor);
  if (got == Got::interrupted) throw Interrupted();
  if (got == Got::error) throw_input_error("{} cannot be read ({}).", what, std::strerror(error));
  if (text.size() > most)
    throw_input_error("{} is longer than {} bytes, which is the most that is read from a pipe.", what, most);
  return text;
}

bool InputLines::next(std::string& line) {
  std::vector<char> piece(4096);
  for (std::size_t searched = 0;;) {
    if (const std::size_t end = text_.find('\n', searched); end != std::string::npos) {
      line = text_.substr(0, end);
      text_.erase(0, end + 1);
      return true;
    }
    searched = text_.size();
    if (searched > kLongestStream) throw_input_error("A line of the input is longer than {} bytes.", kLongestStream);
    const Got got = ended_ ? Got::end : append(STDIN_FILENO, piece, text_);
    if (got == Got::bytes) continue;
    if (got == Got::interrupted) return false;
    if (got == Got::error) throw_input_error("Standard input cannot be read ({}).", std::strerror(errno));
    ended_ = true;
    line = std::exchange(text_, {});
    return !line.empty();
  }
}

}  // namespace tandem::cli
