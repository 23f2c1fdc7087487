#include "eval/kernels/cpu_contention.h"

#include <algorithm>
#include <cctype>
#include <ctime>
#include <fmt/core.h>
#include <fstream>
#include <sstream>
#include <string>
#include <unistd.h>

namespace tandem {
namespace {

constexpr double kMostOfMachine = 0.1;

double busy_now(unsigned& cpus) {
  std::ifstream file("/proc/stat");
  std::ostringstream text;
  text << file.rdbuf();
  return busy_seconds(text.str(), cpus);
}

double own_now() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace

double busy_seconds(const std::string& proc_stat, unsigned& cpus) {
  cpus = 0;
  double busy = -1;
  std::istringstream lines(proc_stat);
  for (std::string line; std::getline(lines, line) && line.compare(0, 3, "cpu") == 0;) {
    if (line.size() > 3 && std::isdigit(static_cast<unsigned char>(line[3])) != 0) {
      ++cpus;
      continue;
    }
    std::istringstream fields(line.substr(3));
    double user = 0, nice = 0, system = 0, idle = 0, iowait = 0, irq = 0, softirq = 0, steal = 0;  // guests are in user
    if (fields >> user >> nice >> system >> idle >> iowait >> irq >> softirq >> steal)
      busy = (user + nice + system + irq + softirq + steal) / static_cast<double>(sysconf(_SC_CLK_TCK));
  }
  return cpus == 0 ? -1 : busy;
}

CpuContention::CpuContention() : begin_(std::chrono::steady_clock::now()), own_(own_now()) {
  unsigned cpus = 0;
  busy_ = busy_now(cpus);
}

double CpuContention::cpus() const {
  unsigned machine = 0;
  const double busy = busy_now(machine);
  const double wall = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  if (busy < 0 || busy_ < 0 || wall <= 0) return 0;
  return std::max(0.0, (busy - busy_ - (own_now() - own_)) / wall);
}

std::string CpuContention::disturbance() const {
  unsigned machine = 0;
  if (busy_now(machine) < 0) return {};
  const double others = cpus();
  if (others <= kMostOfMachine * machine) return {};
  return fmt::format("other processes used {:.2f} of {} CPUs", others, machine);
}

}  // namespace tandem
