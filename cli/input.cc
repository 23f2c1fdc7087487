#include "cli/input.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <linux/magic.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "engine/common/interrupt.h"
#include "engine/common/read_file.h"

namespace tandem::cli {
namespace {

/// A byte in it is the flag for poll(), whichever thread has run the handler: no signal is lost before a wait.
int wake_pipe[2] = {-1, -1};

extern "C" void on_signal(int) {
  if (interrupt()) _exit(kRunFailed);
  const int before = errno;
  constexpr char kText[] = "\nStopping; once more stops at once.\n";
  [[maybe_unused]] auto written = write(STDERR_FILENO, kText, sizeof kText - 1);
  written = write(wake_pipe[1], "", 1);
  errno = before;
}

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

void handle_interrupts() {
  // Without the pipe only signals that this thread handles end a wait.
  if (wake_pipe[0] < 0 && pipe2(wake_pipe, O_CLOEXEC | O_NONBLOCK) != 0) wake_pipe[0] = wake_pipe[1] = -1;
  for (const int signal : {SIGINT, SIGTERM}) {
    struct sigaction old {};
    if (sigaction(signal, nullptr, &old) == 0 && old.sa_handler == SIG_IGN) continue;
    struct sigaction action {};
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    sigaction(signal, &action, nullptr);
  }
  // Past a limit on the size of files, a write is to fail like any other and become a sentence.
  std::signal(SIGXFSZ, SIG_IGN);
}

bool wait_for_input(int descriptor) {
  pollfd files[2] = {{descriptor, POLLIN, 0}, {wake_pipe[0], POLLIN, 0}};
  while (!interrupted()) {
    // Where poll() fails, the read that follows says why.
    if (poll(files, 2, -1) >= 0 || errno != EINTR) return !interrupted();
  }
  return false;
}

std::vector<std::string> split_at_commas(const std::string& list) {
  std::vector<std::string> items;
  for (std::size_t at = 0; at <= list.size();) {
    const std::size_t comma = std::min(list.find(',', at), list.size());
    items.push_back(list.substr(at, comma - at));
    at = comma + 1;
  }
  return items;
}

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
