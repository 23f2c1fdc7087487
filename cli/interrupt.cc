#include "cli/interrupt.h"

#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include "cli/exit_code.h"
#include "engine/common/interrupt.h"

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
    // What is no file that can be waited for is read at once, and the read says why.
    if (poll(files, 2, -1) >= 0 || errno != EINTR) return !interrupted();
  }
  return false;
}

}  // namespace tandem::cli
