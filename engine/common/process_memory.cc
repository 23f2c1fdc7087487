#include "engine/common/process_memory.h"

#include "engine/common/cgroup.h"

namespace tandem {

ProcessMemory process_memory(const std::string& status) {
  ProcessMemory memory;
  memory.resident = kilobytes_in(status, "VmRSS");
  memory.peak = kilobytes_in(status, "VmHWM");
  return memory;
}

}  // namespace tandem
