#include "engine/common/python.h"

#include <cerrno>
#include <csignal>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "engine/common/paths.h"

namespace tandem {
namespace {

constexpr int kNoPackage = 4, kNoProgram = 127;

}  // namespace

PythonEnd run_python(std::string_view script, std::span<const std::string> arguments, int input, int output) {
  // By its whole path: called by a bare name, Python takes the packages of the first python3 in PATH for its own.
  std::vector<std::string> words = {"/usr/bin/python3", data_path(script).string()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::string in_path = "python3";
  std::vector<char*> pointers;
  pointers.reserve(words.size() + 1);
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  const pid_t child = fork();
  if (child < 0) return PythonEnd::not_started;
  if (child == 0) {
    // An interrupt from the terminal goes to both processes. The script does its work, and the program, which still
    // needs it to keep what is finished, ends after that.
    std::signal(SIGINT, SIG_IGN);
    std::signal(SIGTERM, SIG_IGN);
    if ((input >= 0 && dup2(input, STDIN_FILENO) < 0) || (output >= 0 && dup2(output, STDOUT_FILENO) < 0)) _exit(1);
    execv(pointers[0], pointers.data());
    pointers[0] = in_path.data();
    execvp(pointers[0], pointers.data());
    _exit(kNoProgram);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(status)) return PythonEnd::failed;
  switch (WEXITSTATUS(status)) {
    case 0:
      return PythonEnd::done;
    case kNoPackage:
      return PythonEnd::no_package;
    case kNoProgram:
      return PythonEnd::not_installed;
    default:
      return PythonEnd::failed;
  }
}

}  // namespace tandem
