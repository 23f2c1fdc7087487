// Runs the program as a user does: a child process, judged by exit code and output.
#pragma once

#include <array>
#include <cstdio>
#include <ostream>
#include <string>
#include <sys/wait.h>

namespace tandem::cli {

struct Outcome {
  int code = -1;
  std::string text;
};

/// `tandem <arguments>` through the shell; `keep`: which of the two outputs is read.
inline Outcome run(const std::string& arguments, const char* keep = "2>&1") {
  FILE* pipe = popen(("'" TANDEM_PROGRAM "' " + arguments + " " + keep + " </dev/null").c_str(), "r");
  if (pipe == nullptr) return {};
  Outcome outcome;
  std::array<char, 4096> buffer{};
  while (const std::size_t got = std::fread(buffer.data(), 1, buffer.size(), pipe))
    outcome.text.append(buffer.data(), got);
  const int status = pclose(pipe);
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return outcome;
}

/// A command line that is refused, and what it is told.
struct BadUsage {
  const char* arguments;
  const char* says;
};
inline void PrintTo(const BadUsage& usage, std::ostream* out) {
  *out << usage.arguments;
}

inline constexpr const char* kOnlyErrors = "2>&1 >/dev/null";
inline constexpr const char* kOnlyOutput = "2>/dev/null";

}  // namespace tandem::cli
