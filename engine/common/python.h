// Runs the few shipped scripts that need a Python package: a plot, a text's Chinese words.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace tandem {

enum class PythonEnd {
  done,           // exit code 0
  failed,         // any other; the script has said why on standard error
  no_package,     // exit code 4: the script lacks the package that it needs
  not_installed,  // there is no python3
  not_started,    // no new process could be started
};

/// Runs a shipped script, for example "eval/report/plot.py", by the system's python3 (the one that Debian's packages
/// belong to), else by the first one in PATH, and waits for its end. `input` and `output`: file descriptors that become
/// its standard input and output; below 0: those of this program. InputError where the script itself is not there.
PythonEnd run_python(std::string_view script, std::span<const std::string> arguments, int input = -1, int output = -1);

struct PythonAnswer {
  PythonEnd end = PythonEnd::failed;
  std::string text;  // what the script wrote
};

/// The same without arguments: the script reads `text` and its output is the answer. RunError where there is no room
/// for a temporary file.
PythonAnswer ask_python(std::string_view script, std::string_view text);

}  // namespace tandem
