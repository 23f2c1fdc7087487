#include "cli/interrupt.h"

#include <atomic>
#include <csignal>
#include <unistd.h>

#include "cli/exit_code.h"

namespace tandem::cli {
namespace {

std::atomic<bool> flag{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler may touch nothing else");

extern "C" void on_signal(int) {
  if (flag.exchange(true)) _exit(kRunFailed);
  constexpr char kText[] = "\nStopping; once more stops at once.\n";
  [[maybe_unused]] const auto written = write(STDERR_FILENO, kText, sizeof kText - 1);
}

void restart_reads(bool restart) {
  struct sigaction action {};
  if (sigaction(SIGINT, nullptr, &action) != 0 || action.sa_handler != on_signal) return;
  action.sa_flags = restart ? action.sa_flags | SA_RESTART : action.sa_flags & ~SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
}

}  // namespace

void handle_interrupts() {
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

bool interrupted() {
  return flag.load(std::memory_order_relaxed);
}

EndsReading::EndsReading() {
  restart_reads(false);
}
EndsReading::~EndsReading() {
  restart_reads(true);
}

}  // namespace tandem::cli
