#include "engine/common/cgroup.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <sstream>

namespace tandem {
namespace {

/// `visit` for the cgroup at `folder` and all of its parents.
template <class Visit>
void visit_upwards(std::string folder, const std::string& root, Visit visit) {
  while (folder.size() >= root.size()) {
    visit(folder);
    const std::size_t slash = folder.rfind('/');
    if (slash == std::string::npos || slash == 0) break;
    folder.resize(slash);
  }
}

/// The same for all cgroups with this controller that the process is in.
template <class Visit>
void visit_cgroups(const std::string& root, const std::string& membership, const std::string& controller, Visit visit) {
  visit_upwards(root, root, visit);
  std::ifstream file(membership);
  for (std::string line; std::getline(file, line);) {  // "0::/path" or "4:cpu,cpuacct:/path"
    std::istringstream fields(line);
    std::string id, controllers, path;
    if (!std::getline(fields, id, ':') || !std::getline(fields, controllers, ':') || !std::getline(fields, path))
      continue;
    if (controllers.empty())
      visit_upwards(root + path, root, visit);
    else if (("," + controllers + ",").find("," + controller + ",") != std::string::npos)
      visit_upwards(root + "/" + controller + path, root, visit);
  }
}

/// CPUs that the quota of one cgroup amounts to; infinity where there is none.
double quota_of(const std::string& folder) {
  std::string quota;
  double period = 0;
  if (std::ifstream file(folder + "/cpu.max"); file >> quota >> period) {  // cgroup v2: "max 100000" or "150000 100000"
    return quota != "max" && period > 0 ? std::strtod(quota.c_str(), nullptr) / period : INFINITY;
  }
  double microseconds = -1;
  std::ifstream(folder + "/cpu.cfs_quota_us") >> microseconds;
  std::ifstream(folder + "/cpu.cfs_period_us") >> period;
  return microseconds > 0 && period > 0 ? microseconds / period : INFINITY;
}

/// The number that a file is; nothing where it says "max".
std::optional<std::size_t> number_in(const std::string& file) {
  std::size_t number = 0;
  if (std::ifstream in(file); in >> number) return number;
  return std::nullopt;
}

CgroupMemory memory_of(const std::string& folder) {
  auto limit = number_in(folder + "/memory.max"), used = number_in(folder + "/memory.current");
  std::string prefix;
  if (!limit) {
    limit = number_in(folder + "/memory.limit_in_bytes");
    used = number_in(folder + "/memory.usage_in_bytes");
    prefix = "total_";
  }
  // Version 1 writes a huge number for "no limit".
  if (!limit || *limit >= std::size_t{1} << 60) return {};
  std::size_t taken = used.value_or(0), bytes = 0;
  // What files keep in the cache is given back to whoever asks.
  std::ifstream stat(folder + "/memory.stat");
  for (std::string name; stat >> name >> bytes;)
    if (name == prefix + "inactive_file" || name == prefix + "active_file") taken -= std::min(taken, bytes);
  return {*limit, *limit - std::min(*limit, taken)};
}

}  // namespace

std::size_t kilobytes_in(const std::string& file, const std::string& key) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(key + ":")) return std::strtoull(line.c_str() + key.size() + 1, nullptr, 10) * 1024;
  return 0;
}

std::size_t available_memory() {
  std::size_t bytes = meminfo("MemAvailable");
  if (bytes == 0) bytes = meminfo("MemTotal") / 2;
  if (bytes == 0) bytes = std::size_t{1} << 30;
  return std::min(bytes, cgroup_memory().room);
}

ProcessMemory process_memory(const std::string& status) {
  return {kilobytes_in(status, "VmRSS"), kilobytes_in(status, "VmHWM")};
}

double cgroup_cpus(const std::string& root, const std::string& membership) {
  double cpus = INFINITY;
  visit_cgroups(root, membership, "cpu", [&](const std::string& folder) { cpus = std::min(cpus, quota_of(folder)); });
  return cpus;
}

CgroupMemory cgroup_memory(const std::string& root, const std::string& membership) {
  CgroupMemory all;
  visit_cgroups(root, membership, "memory", [&](const std::string& folder) {
    const CgroupMemory one = memory_of(folder);
    all.limit = std::min(all.limit, one.limit);
    all.room = std::min(all.room, one.room);
  });
  return all;
}

}  // namespace tandem
