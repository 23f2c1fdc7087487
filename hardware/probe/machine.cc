#include "hardware/probe/machine.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <dirent.h>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <sys/utsname.h>
#include <unistd.h>

#include "engine/common/cgroup.h"
#include "engine/common/cpus.h"
#include "hardware/probe/cpu_kernels.h"

namespace tandem::probe {
namespace {

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string trim(const std::string& text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

/// Names in `directory` of the form prefix + digits.
std::vector<int> numbered(const std::string& directory, const std::string& prefix) {
  std::vector<int> numbers;
  if (DIR* handle = opendir(directory.c_str())) {
    while (const dirent* entry = readdir(handle)) {
      const std::string name = entry->d_name;
      if (!name.starts_with(prefix) || name.size() == prefix.size() || name.size() > prefix.size() + 6) continue;
      if (name.find_first_not_of("0123456789", prefix.size()) != std::string::npos) continue;
      numbers.push_back(std::stoi(name.substr(prefix.size())));
    }
    closedir(handle);
  }
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

/// "32768K", "2M" as sysfs writes them.
std::size_t sysfs_bytes(const std::string& text) {
  char* end = nullptr;
  const unsigned long long number = std::strtoull(text.c_str(), &end, 10);
  const std::size_t unit = *end == 'K' ? 1024 : *end == 'M' ? std::size_t{1} << 20 : 1;
  return static_cast<std::size_t>(number) * unit;
}

struct CpuInfo {
  std::map<std::string, std::string> first;  // keys of the first processor
  int processors = 0;
  std::set<std::pair<std::string, std::string>> cores;
  std::set<std::string> sockets;
};

CpuInfo read_cpuinfo() {
  CpuInfo info;
  std::ifstream file("/proc/cpuinfo");
  std::string physical;
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::string key = trim(line.substr(0, colon)), value = trim(line.substr(colon + 1));
    if (key == "processor") ++info.processors;
    if (info.processors <= 1) info.first.emplace(key, value);
    if (key == "physical id") info.sockets.insert(physical = value);
    if (key == "core id") info.cores.emplace(physical, value);
  }
  return info;
}

}  // namespace

std::vector<int> allowed_cpus() {
  std::vector<int> cpus = usable_cpus();
  if (cpus.empty()) {  // more CPUs than a cpu_set_t holds
    const long online = std::max(1L, sysconf(_SC_NPROCESSORS_ONLN));
    for (int cpu = 0; cpu < online; ++cpu) cpus.push_back(cpu);
  }
  return cpus;
}

int usable_threads() {
  const int allowed = static_cast<int>(allowed_cpus().size());
  const double quota = cgroup_cpus();
  return quota < allowed ? std::max(1, static_cast<int>(std::ceil(quota))) : allowed;
}

std::size_t last_level_cache() {
  // One entry per group of CPUs that share a cache; the group's first CPU names it.
  std::map<std::string, std::size_t> groups;
  int level = 0;
  for (int cpu : numbered("/sys/devices/system/cpu", "cpu")) {
    const std::string base = "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/cache";
    for (int index : numbered(base, "index")) {
      const std::string path = base + "/index" + std::to_string(index);
      const int here = static_cast<int>(std::strtol(first_line(path + "/level").c_str(), nullptr, 10));
      if (here < 2 || here < level || first_line(path + "/type") == "Instruction") continue;
      if (here > level) groups.clear();
      level = here;
      groups[first_line(path + "/shared_cpu_list")] = sysfs_bytes(first_line(path + "/size"));
    }
  }
  std::size_t bytes = 0;
  for (const auto& [cpus, size] : groups) bytes += size;
  if (bytes > 0) return bytes;
  const long fallback = sysconf(_SC_LEVEL3_CACHE_SIZE);
  return fallback > 0 ? static_cast<std::size_t>(fallback) : 0;
}

std::string load_average() {
  std::istringstream text(first_line("/proc/loadavg"));
  std::string one, five, fifteen;
  if (!(text >> one >> five >> fifteen)) return "";
  return one + " " + five + " " + fifteen;
}

void read_machine(Report& report) {
  CpuInfo info = read_cpuinfo();
  const auto known = [&](const char* key) { return info.first.count(key) ? info.first[key] : std::string(); };
  const std::string model = known("model name").empty() ? "unknown CPU" : known("model name");
  report.machine = {{"name", report.options.label.empty() ? model : report.options.label},
                    {"load_average_start", load_average()}};
  utsname names{};
  if (uname(&names) == 0) {
    report.machine.emplace_back("kernel", std::string(names.sysname) + " " + names.release);
    report.machine.emplace_back("architecture", std::string(names.machine));
  }

  Fields& cpu = report.cpu;
  cpu = {{"model", model}};
  for (const auto& [key, name] : {std::pair{"vendor_id", "vendor"},
                                  {"cpu family", "family"},
                                  {"model", "model_number"},
                                  {"stepping", "stepping"}}) {
    if (!known(key).empty()) cpu.emplace_back(name, known(key));
  }
  cpu.emplace_back("logical_cpus", info.processors);
  cpu.emplace_back("allowed_cpus", allowed_cpus().size());
  if (!info.cores.empty()) cpu.emplace_back("cores", info.cores.size());
  if (!info.sockets.empty()) cpu.emplace_back("sockets", info.sockets.size());
  if (const double quota = cgroup_cpus(); std::isfinite(quota)) cpu.emplace_back("cgroup_cpu_quota", quota);
  cpu.emplace_back("threads_used", usable_threads());
  cpu.emplace_back("last_level_cache_bytes", last_level_cache());
  cpu.emplace_back("isa", to_string(best_isa()));
  cpu.emplace_back("virtual_machine", known("flags").find("hypervisor") != std::string::npos);

  Fields& memory = report.memory;
  memory = {{"total_bytes", meminfo("MemTotal")}, {"available_bytes", available_memory()}};
  if (const std::size_t limit = cgroup_memory().limit; limit != CgroupMemory::kNoLimit)
    memory.emplace_back("cgroup_limit_bytes", limit);
  const std::size_t nodes = numbered("/sys/devices/system/node", "node").size();
  memory.emplace_back("numa_nodes", std::max<std::size_t>(1, nodes));
  if (const std::string pages = first_line("/sys/kernel/mm/transparent_hugepage/enabled"); !pages.empty()) {
    memory.emplace_back("transparent_huge_pages", pages);
  }
}

}  // namespace tandem::probe
