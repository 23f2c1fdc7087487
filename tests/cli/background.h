// The program in the background, and with little room for its files.
#pragma once

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "tests/cli/program.h"

namespace tandem::cli {

/// The program in the background; what it says on stderr goes to a file, all else is thrown away.
inline pid_t start(const std::string& arguments, const std::string& errors = "/dev/null") {
  const pid_t child = fork();
  if (child == 0) {
    execl("/bin/sh", "sh", "-c", ("exec '" TANDEM_PROGRAM "' " + arguments + " >/dev/null 2>'" + errors + "'").c_str(),
          nullptr);
    _exit(127);
  }
  return child;
}

/// Returns when the program would take SIGINT as it means to, or has ended. The shell that becomes the program handles
/// SIGINT for a moment too.
inline void wait_until_it_handles_interrupts(pid_t child) {
  const std::filesystem::path process = "/proc/" + std::to_string(child);
  for (int i = 0; i < 30'000; ++i) {
    std::error_code ended;
    const bool is_program = std::filesystem::equivalent(process / "exe", TANDEM_PROGRAM, ended);
    if (ended) return;
    std::ifstream status(process / "status");
    for (std::string line; is_program && std::getline(status, line);) {
      if (line.rfind("SigCgt:", 0) != 0) continue;
      if ((std::stoull(line.substr(7), nullptr, 16) >> (SIGINT - 1) & 1) != 0) return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

/// Returns when the file is there, or after half a minute.
inline void wait_for_file(const std::filesystem::path& file) {
  for (int i = 0; i < 30000 && !std::filesystem::exists(file); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

/// Whether the program ends in this time; where it does not it is killed.
inline bool ends_within(pid_t child, std::chrono::milliseconds time) {
  const auto last = std::chrono::steady_clock::now() + time;
  siginfo_t end{};
  while (waitid(P_PID, static_cast<id_t>(child), &end, WEXITED | WNOHANG | WNOWAIT) == 0 && end.si_pid == 0) {
    if (std::chrono::steady_clock::now() > last) {
      kill(child, SIGKILL);
      return false;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

inline int exit_code_of(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/// The program in a process whose files end at `bytes`; what it says on stderr.
inline Outcome run_limited(const std::string& arguments, rlim_t bytes) {
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small{bytes, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);  // the child inherits it; this process writes no file meanwhile
  Outcome outcome = run(arguments, kOnlyErrors);
  setrlimit(RLIMIT_FSIZE, &before);
  return outcome;
}

inline std::size_t lines(const std::string& text) {
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

}  // namespace tandem::cli
