// The program in the background, and with little room for its files.
#pragma once

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <sys/resource.h>
#include <sys/stat.h>
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

/// Returns true when `done` says so, or false after half a minute.
template <class Done>
bool wait_until(const Done& done) {
  for (int i = 0; i < 30'000; ++i) {
    if (done()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

/// Returns when the program would take SIGINT as it means to, or has ended. The shell that becomes the program handles
/// SIGINT for a moment too.
inline void wait_until_it_handles_interrupts(pid_t child) {
  const std::filesystem::path process = "/proc/" + std::to_string(child);
  wait_until([&] {
    std::error_code ended;
    const bool is_program = std::filesystem::equivalent(process / "exe", TANDEM_PROGRAM, ended);
    if (ended) return true;
    std::ifstream status(process / "status");
    for (std::string line; is_program && std::getline(status, line);)
      if (line.starts_with("SigCgt:")) return (std::stoull(line.substr(7), nullptr, 16) >> (SIGINT - 1) & 1) != 0;
    return false;
  });
}

/// Returns true when a run or a collection has taken its folder, which its command also locks for a moment when it
/// begins; false where /proc/locks does not say so within half a minute.
inline bool wait_until_locked(const std::filesystem::path& folder) {
  struct stat status {};
  stat(folder.c_str(), &status);
  const std::string inode = ":" + std::to_string(status.st_ino) + " ";
  int looks = 0;  // at a lock, one after the other
  return wait_until([&] {
    std::ifstream locks("/proc/locks");
    bool locked = false;
    for (std::string line; std::getline(locks, line);) locked = locked || line.find(inode) != std::string::npos;
    looks = locked ? looks + 1 : 0;
    return looks == 50;
  });
}

inline void wait_for_file(const std::filesystem::path& file) {
  wait_until([&] { return std::filesystem::exists(file); });
}

/// Lines of a file; 0 where there is none.
inline std::size_t lines_of(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return static_cast<std::size_t>(std::count(std::istreambuf_iterator<char>(in), {}, '\n'));
}

inline void wait_for_lines(const std::filesystem::path& file, std::size_t lines) {
  wait_until([&] { return lines_of(file) >= lines; });
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
