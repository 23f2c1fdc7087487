#include "engine/common/cgroup.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

namespace tandem {
namespace {

// CPUs that a quota of the cgroup at `folder` or of its parents amounts to; infinity where there is none.
double quota_of(std::string folder, const std::string& root) {
  double cpus = INFINITY;
  while (folder.size() >= root.size()) {
    std::string quota;
    double period = 0;
    if (std::ifstream file(folder + "/cpu.max");
        file >> quota >> period) {  // cgroup v2: "max 100000" or "150000 100000"
      if (quota != "max" && period > 0) cpus = std::min(cpus, std::strtod(quota.c_str(), nullptr) / period);
    } else {
      double microseconds = -1;
      std::ifstream(folder + "/cpu.cfs_quota_us") >> microseconds;
      std::ifstream(folder + "/cpu.cfs_period_us") >> period;
      if (microseconds > 0 && period > 0) cpus = std::min(cpus, microseconds / period);
    }
    const std::size_t slash = folder.rfind('/');
    if (slash == std::string::npos || slash == 0) break;
    folder.resize(slash);
  }
  return cpus;
}

}  // namespace

double cgroup_cpus(const std::string& root, const std::string& membership) {
  double cpus = quota_of(root, root);
  std::ifstream file(membership);
  for (std::string line; std::getline(file, line);) {  // "0::/path" or "4:cpu,cpuacct:/path"
    std::istringstream fields(line);
    std::string id, controllers, path;
    if (!std::getline(fields, id, ':') || !std::getline(fields, controllers, ':') || !std::getline(fields, path))
      continue;
    if (controllers.empty())
      cpus = std::min(cpus, quota_of(root + path, root));
    else if (("," + controllers + ",").find(",cpu,") != std::string::npos)
      cpus = std::min(cpus, quota_of(root + "/cpu" + path, root));
  }
  return cpus;
}

}  // namespace tandem
