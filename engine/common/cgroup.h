// What the machine, a container or a service manager lets a process have. tandem-probe compiles this, too, on
// machines without any library: the standard library only.
#pragma once

#include <cstddef>
#include <limits>
#include <string>

namespace tandem {

/// CPUs that the process's cgroup and its parents allow, perhaps a fraction; infinity where there is no quota (v2:
/// cpu.max; v1: cpu.cfs_quota_us, cpu.cfs_period_us). `root`: where cgroups are mounted; `membership`: the process's
/// place in them.
double cgroup_cpus(const std::string& root = "/sys/fs/cgroup", const std::string& membership = "/proc/self/cgroup");

struct CgroupMemory {
  static constexpr std::size_t kNoLimit = std::numeric_limits<std::size_t>::max();
  std::size_t limit = kNoLimit;  // the smallest of the process's cgroup and its parents
  std::size_t room = kNoLimit;   // what the one with the least still gives, its cache of files included
};

/// The same for memory, in bytes (cgroup v2's memory.max, v1's memory.limit_in_bytes).
CgroupMemory cgroup_memory(const std::string& root = "/sys/fs/cgroup",
                           const std::string& membership = "/proc/self/cgroup");

/// Bytes in the line "<key>:  123 kB" of a file in /proc; 0 where there is no such line.
std::size_t kilobytes_in(const std::string& file, const std::string& key);

/// A figure of /proc/meminfo in bytes, such as "MemTotal"; 0 where it is not there.
inline std::size_t meminfo(const std::string& key) {
  return kilobytes_in("/proc/meminfo", key);
}

/// Bytes that the process can still take: free memory and file cache, or less where a cgroup leaves less. Half of the
/// memory, or 1 GiB, where the system does not say.
std::size_t available_memory();

struct ProcessMemory {
  std::size_t resident = 0, peak = 0;  // bytes in memory now, and the most so far; mapped files included
};

/// Memory use of this process, read from `status`; zeros if the system does not report it.
ProcessMemory process_memory(const std::string& status = "/proc/self/status");

}  // namespace tandem
