#include <cerrno>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/common/paths.h"
#include "eval/report/table.h"

namespace tandem::eval {

std::string make_plot(const std::filesystem::path& folder) {
  const std::string script = data_path("eval/report/plot.py").string(), target = folder.string();
  const pid_t child = fork();
  if (child < 0) return "The plot was not drawn: no new process could be started.";
  if (child == 0) {
    // The system's Python first: it is the one that Debian's matplotlib belongs to.
    execl("/usr/bin/python3", "python3", script.c_str(), target.c_str(), static_cast<char*>(nullptr));
    execlp("python3", "python3", script.c_str(), target.c_str(), static_cast<char*>(nullptr));
    _exit(127);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return "";
  if (WIFEXITED(status) && WEXITSTATUS(status) == 127) return "The plot was not drawn: python3 is not installed.";
  if (WIFEXITED(status) && WEXITSTATUS(status) == 4) {
    return "The plot was not drawn: python3 has no matplotlib (Debian package python3-matplotlib).";
  }
  return "The plot was not drawn: eval/report/plot.py failed.";
}

}  // namespace tandem::eval
