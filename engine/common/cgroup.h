// The CPU quota that a container or a service manager sets for a process.
#pragma once

#include <string>

namespace tandem {

/// CPUs that the process's cgroup and its parents allow (cgroup v2's cpu.max, v1's cpu.cfs_quota_us over
/// cpu.cfs_period_us), infinity where there is no quota. It can be a fraction: 1.5 is three threads half of the time.
/// `root` is where cgroups are mounted, `membership` says where in them the process is.
double cgroup_cpus(const std::string& root = "/sys/fs/cgroup", const std::string& membership = "/proc/self/cgroup");

}  // namespace tandem
