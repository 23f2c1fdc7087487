#include "engine/common/python.h"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <memory>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "engine/common/error.h"
#include "engine/common/paths.h"

namespace tandem {
namespace {

constexpr int kNoPackage = 4, kNoProgram = 127;

/// A file without a name: however much is written to it before the other side reads, nobody waits for the other.
class Scratch {
 public:
  explicit Scratch(std::string_view script) : script_(script), file_(std::tmpfile(), &std::fclose) {
    check(file_ != nullptr, "made");
  }

  int descriptor() const { return fileno(file_.get()); }

  void write(std::string_view text) {
    check(std::fwrite(text.data(), 1, text.size(), file_.get()) == text.size() && std::fflush(file_.get()) == 0,
          "written");
    rewind();
  }

  /// What was written to the descriptor.
  std::string read() {
    rewind();
    std::string text;
    char part[65536];
    while (const std::size_t n = std::fread(part, 1, sizeof part, file_.get())) text.append(part, n);
    return text;
  }

 private:
  void rewind() { check(std::fseek(file_.get(), 0, SEEK_SET) == 0, "read"); }
  void check(bool good, const char* what) const {
    if (!good) throw_run_error("A temporary file for {} could not be {}.", script_, what);
  }

  const std::string script_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
};

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

PythonAnswer ask_python(std::string_view script, std::string_view text) {
  Scratch input(script), output(script);
  input.write(text);
  const PythonEnd end = run_python(script, {}, input.descriptor(), output.descriptor());
  return {end, end == PythonEnd::done ? output.read() : ""};
}

}  // namespace tandem
