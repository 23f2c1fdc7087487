#include "engine/common/cpus.h"

#include <fstream>
#include <sched.h>
#include <set>
#include <string>

namespace tandem {

std::vector<int> usable_cpus() {
  std::vector<int> cpus;
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return cpus;  // EINVAL with more than 1,024
  cpus.reserve(static_cast<std::size_t>(CPU_COUNT(&set)));
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  return cpus;
}

std::vector<int> usable_cores() {
  std::vector<int> first;
  std::set<std::string> seen;
  for (const int cpu : usable_cpus()) {
    std::ifstream file("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list");
    std::string siblings;
    if (!std::getline(file, siblings) || seen.insert(siblings).second) first.push_back(cpu);
  }
  return first;
}

bool run_on(const std::vector<int>& cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus)
    if (cpu >= 0 && cpu < CPU_SETSIZE) CPU_SET(cpu, &set);
  return sched_setaffinity(0, sizeof set, &set) == 0;
}

}  // namespace tandem
