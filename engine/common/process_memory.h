// Memory that this process takes, as the system counts it.
#pragma once

#include <cstddef>
#include <string>

namespace tandem {

struct ProcessMemory {
  std::size_t resident = 0, peak = 0;  // bytes in memory now, and the most so far; mapped files included
};

/// Zeros where the system does not tell. `status` is the file that it tells it in.
ProcessMemory process_memory(const std::string& status = "/proc/self/status");

}  // namespace tandem
