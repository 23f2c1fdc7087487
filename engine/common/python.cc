#include "engine/common/python.h"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <memory>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "engine/common/error.h"
#include "engine/common/paths.h"

namespace tandem {
namespace {

constexpr int kNoPackage = 4;

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

/// Its arguments, of strings that outlive it.
std::vector<char*> argument_pointers(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  pointers.reserve(words.size() + 1);
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

/// How a new process begins. Not fork(): a large KV cache in pinned memory would be copied, or its pages taken from
/// under the GPU.
class Beginning {
 public:
  Beginning(int input, int output) {
    posix_spawn_file_actions_init(&files_);
    posix_spawnattr_init(&attributes_);
    if (input >= 0) posix_spawn_file_actions_adddup2(&files_, input, STDIN_FILENO);
    if (output >= 0) posix_spawn_file_actions_adddup2(&files_, output, STDOUT_FILENO);
    // An interrupt from the terminal goes to both processes. The script does its work, and the program, which still
    // needs it to keep what is finished, ends after that.
    sigset_t held;
    pthread_sigmask(SIG_BLOCK, nullptr, &held);
    sigaddset(&held, SIGINT);
    sigaddset(&held, SIGTERM);
    posix_spawnattr_setsigmask(&attributes_, &held);
    posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSIGMASK);
  }
  Beginning(const Beginning&) = delete;
  Beginning& operator=(const Beginning&) = delete;
  ~Beginning() {
    posix_spawn_file_actions_destroy(&files_);
    posix_spawnattr_destroy(&attributes_);
  }

  /// 0, or why there is no such process.
  int spawn(pid_t& child, std::vector<std::string>& words) const {
    return posix_spawnp(&child, words[0].c_str(), &files_, &attributes_, argument_pointers(words).data(), environ);
  }

 private:
  posix_spawn_file_actions_t files_{};
  posix_spawnattr_t attributes_{};
};

}  // namespace

PythonEnd run_python(std::string_view script, std::span<const std::string> arguments, int input, int output) {
  // By its whole path: called by a bare name, Python takes the packages of the first python3 in PATH for its own.
  std::vector<std::string> words = {"/usr/bin/python3", data_path(script).string()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  const Beginning beginning(input, output);
  pid_t child = -1;
  int refused = beginning.spawn(child, words);
  if (refused == ENOENT || refused == EACCES) {
    words[0] = "python3";
    refused = beginning.spawn(child, words);
  }
  if (refused == ENOENT || refused == EACCES) return PythonEnd::not_installed;
  if (refused != 0) return PythonEnd::not_started;
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(status)) return PythonEnd::failed;
  switch (WEXITSTATUS(status)) {
    case 0:
      return PythonEnd::done;
    case kNoPackage:
      return PythonEnd::no_package;
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
