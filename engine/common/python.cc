#include "engine/common/python.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <memory>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "engine/common/error.h"
#include "engine/common/paths.h"

namespace tandem {
namespace {

constexpr int kNoPackage = 4;

/// How a new process begins. Not fork(): a large KV cache in pinned memory would be copied, or its pages taken from
/// under the GPU.
class Beginning {
 public:
  Beginning(int input, int output) {
    posix_spawn_file_actions_init(&files_);
    posix_spawnattr_init(&attributes_);
    if (input >= 0) posix_spawn_file_actions_adddup2(&files_, input, STDIN_FILENO);
    if (output >= 0) posix_spawn_file_actions_adddup2(&files_, output, STDOUT_FILENO);
    posix_spawn_file_actions_addclosefrom_np(&files_, STDERR_FILENO + 1);  // a run folder's lock, for one
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
    std::vector<char*> arguments;
    arguments.reserve(words.size() + 1);
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    return posix_spawnp(&child, words[0].c_str(), &files_, &attributes_, arguments.data(), environ);
  }

 private:
  posix_spawn_file_actions_t files_{};
  posix_spawnattr_t attributes_{};
};

/// Nothing where it runs.
std::optional<PythonEnd> start(pid_t& child, std::string_view script, std::span<const std::string> arguments, int input,
                               int output) {
  // By its whole path: called by a bare name, Python takes the packages of the first python3 in PATH for its own.
  std::vector<std::string> words = {"/usr/bin/python3", data_path(script).string()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  const Beginning beginning(input, output);
  int refused = beginning.spawn(child, words);
  if (refused == ENOENT || refused == EACCES) {
    words[0] = "python3";
    refused = beginning.spawn(child, words);
  }
  if (refused == 0) return std::nullopt;
  child = -1;
  return refused == ENOENT || refused == EACCES ? PythonEnd::not_installed : PythonEnd::not_started;
}

PythonAnswer wait_for_end(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(status)) return {.end = PythonEnd::failed, .out_of_time = WTERMSIG(status) == SIGXCPU};
  const int code = WEXITSTATUS(status);
  return {.end = code == 0 ? PythonEnd::done : code == kNoPackage ? PythonEnd::no_package : PythonEnd::failed};
}

}  // namespace

PythonEnd run_python(std::string_view script, std::span<const std::string> arguments, int input, int output) {
  pid_t child = -1;
  const std::optional<PythonEnd> refused = start(child, script, arguments, input, output);
  return refused ? *refused : wait_for_end(child).end;
}

// Files without names: however much is written to one before the other side reads, nobody waits for the other.
PythonAnswer ask_python(std::string_view script, std::string_view text) {
  const auto check = [&](bool good, const char* what) {
    if (!good) throw_run_error("A temporary file for {} could not be {}.", script, what);
  };
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> in(std::tmpfile(), &std::fclose),
      out(std::tmpfile(), &std::fclose);
  check(in != nullptr && out != nullptr, "made");
  check(std::fwrite(text.data(), 1, text.size(), in.get()) == text.size() && std::fflush(in.get()) == 0, "written");
  check(std::fseek(in.get(), 0, SEEK_SET) == 0, "read");
  PythonAnswer answer = {.end = run_python(script, {}, fileno(in.get()), fileno(out.get()))};
  if (answer.end != PythonEnd::done) return answer;
  check(std::fseek(out.get(), 0, SEEK_SET) == 0, "read");
  char part[65536];
  while (const std::size_t n = std::fread(part, 1, sizeof part, out.get())) answer.text.append(part, n);
  return answer;
}

PythonServer::PythonServer(std::string_view script) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    ended_ = {.end = PythonEnd::not_started};
    return;
  }
  socket_ = ends[0];
  try {
    if (const std::optional<PythonEnd> refused = start(child_, script, {}, ends[1], ends[1]))
      ended_ = {.end = *refused};
  } catch (...) {
    close(ends[0]);
    close(ends[1]);
    throw;
  }
  close(ends[1]);
}

PythonServer::~PythonServer() {
  stop();
  if (socket_ >= 0) close(socket_);
}

PythonAnswer PythonServer::ask(std::string_view request, std::size_t most_bytes, std::chrono::milliseconds limit) {
  constexpr std::size_t kLongestNumber = 20;
  if (ended_) return *ended_;
  const Time until = std::chrono::steady_clock::now() + limit;
  if (!send_all(fmt::format("{}\n", request.size()), until) || !send_all(request, until)) return stop();
  std::string answer;
  std::size_t newline = std::string::npos;
  while (newline == std::string::npos) {
    if (answer.size() > kLongestNumber) return stop({.end = PythonEnd::failed});
    if (!receive(answer, kLongestNumber + 1 + most_bytes, until)) return stop();
    newline = answer.find('\n');
  }
  std::size_t bytes = 0;
  const char* const end = answer.data() + newline;
  const auto [read, error] = std::from_chars(answer.data(), end, bytes);
  if (error != std::errc() || read != end || bytes > most_bytes) return stop({.end = PythonEnd::failed});
  answer.erase(0, newline + 1);
  while (answer.size() < bytes)
    if (!receive(answer, bytes, until)) return stop();
  if (answer.size() > bytes) return stop({.end = PythonEnd::failed});
  return {PythonEnd::done, std::move(answer)};
}

bool PythonServer::wait_for(short events, Time until) {
  while (true) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(until - std::chrono::steady_clock::now()).count();
    if (left <= 0) break;
    pollfd watched{socket_, events, 0};
    const int ready = poll(&watched, 1, static_cast<int>(std::min<std::int64_t>(left, 60'000)));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) break;
  }
  stop({.end = PythonEnd::failed, .out_of_time = true});
  return false;
}

bool PythonServer::send_all(std::string_view bytes, Time until) {
  while (!bytes.empty()) {
    if (!wait_for(POLLOUT, until)) return false;
    const ssize_t sent = send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    } else if (errno != EINTR && errno != EAGAIN) {
      stop();
      return false;
    }
  }
  return true;
}

/// Appends what there is, up to `most` bytes in all.
bool PythonServer::receive(std::string& bytes, std::size_t most, Time until) {
  constexpr std::size_t kPart = std::size_t{1} << 16;
  if (!wait_for(POLLIN, until)) return false;
  const std::size_t before = bytes.size();
  bytes.resize(std::min(most + 1, before + kPart));  // one more: an answer that is too long is seen
  const ssize_t got = recv(socket_, bytes.data() + before, bytes.size() - before, MSG_DONTWAIT);
  bytes.resize(before + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  if (got > 0 || (got < 0 && (errno == EINTR || errno == EAGAIN))) return true;
  stop();
  return false;
}

/// For what the process's own end tells, where nothing else has: one that ends well has not answered.
PythonAnswer PythonServer::stop() {
  PythonAnswer end = {.end = PythonEnd::failed};
  if (child_ >= 0) {
    kill(child_, SIGKILL);  // changes nothing where it has ended
    end = wait_for_end(child_);
    child_ = -1;
    if (end.end == PythonEnd::done) end.end = PythonEnd::failed;
  }
  if (!ended_) ended_ = std::move(end);
  return *ended_;
}

PythonAnswer PythonServer::stop(PythonAnswer why) {
  ended_ = std::move(why);
  return stop();
}

}  // namespace tandem
