#include <algorithm>
#include <chrono>
#include <ctime>
#include <fstream>
#include <thread>
#include <unistd.h>

#include "eval/report/schema.h"

namespace tandem::eval {

Machine this_machine() {
  Machine machine;
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; machine.cpu_model.empty() && std::getline(in, line);)
    if (const std::size_t colon = line.find(": "); line.starts_with("model name") && colon != std::string::npos)
      machine.cpu_model = line.substr(colon + 2);
  if (machine.cpu_model.empty()) machine.cpu_model = "unknown";
  machine.cores = std::max(1u, std::thread::hardware_concurrency());
  const long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGE_SIZE);
  if (pages > 0 && size > 0)
    machine.memory_bytes = static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(size);
  return machine;
}

std::string utc_now() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

}  // namespace tandem::eval
