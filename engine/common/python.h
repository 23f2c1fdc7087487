// Runs the few shipped scripts that need a Python package: a plot, a text's Chinese words.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <sys/types.h>

namespace tandem {

enum class PythonEnd {
  done,           // exit code 0
  failed,         // any other; the script has said why on standard error
  no_package,     // exit code 4: the script lacks the package that it needs
  not_installed,  // there is no python3
  not_started,    // no new process could be started
};

/// Runs a shipped script, for example "eval/report/plot.py", by Debian's python3, else the first one in PATH, and waits
/// for its end. `input`, `output`: file descriptors for its standard input and output; below 0: this program's.
/// InputError where the script is not there.
PythonEnd run_python(std::string_view script, std::span<const std::string> arguments, int input = -1, int output = -1);

struct PythonAnswer {
  PythonEnd end = PythonEnd::failed;
  std::string text = {};     // what the script wrote
  bool out_of_time = false;  // of `failed`: it used up its CPU time (RLIMIT_CPU), or the caller's time was over
};

/// The same without arguments: `text` is its input, its output the answer. RunError where no temporary file can be had.
PythonAnswer ask_python(std::string_view script, std::string_view text);

/// A script in a process of its own that answers one request after another. It is not trusted: it has no file of this
/// program's, and whatever it does not answer as agreed ends it. Not for several threads at once.
///
/// Requests come on standard input and answers go to standard output, each as its number of bytes in decimal, a
/// newline, and the bytes. The end of its input is its end.
class PythonServer {
 public:
  /// InputError where the script itself is not there; whatever else fails is the end of the first answer.
  explicit PythonServer(std::string_view script);
  PythonServer(const PythonServer&) = delete;
  PythonServer& operator=(const PythonServer&) = delete;
  ~PythonServer();  // kills the process

  /// `done` with an answer of at most `most_bytes` within `limit`. Any other end is the process's, and that of later
  /// requests.
  PythonAnswer ask(std::string_view request, std::size_t most_bytes, std::chrono::milliseconds limit);

 private:
  using Time = std::chrono::steady_clock::time_point;

  bool wait_for(short events, Time until);
  bool send_all(std::string_view bytes, Time until);
  bool receive(std::string& bytes, std::size_t most, Time until);
  PythonAnswer stop();
  PythonAnswer stop(PythonAnswer why);

  int socket_ = -1;
  pid_t child_ = -1;
  std::optional<PythonAnswer> ended_;
};

}  // namespace tandem
