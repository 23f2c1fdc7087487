#include "engine/common/process_memory.h"

#include <charconv>
#include <fstream>
#include <string_view>

namespace tandem {
namespace {

/// "VmRSS:	    1234 kB"
std::size_t kilobytes_in(std::string_view line) {
  const std::size_t digit = line.find_first_of("0123456789");
  std::size_t kilobytes = 0;
  if (digit != std::string_view::npos) std::from_chars(line.data() + digit, line.data() + line.size(), kilobytes);
  return kilobytes;
}

}  // namespace

ProcessMemory process_memory(const std::string& status) {
  ProcessMemory memory;
  std::ifstream file(status);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("VmRSS:")) memory.resident = kilobytes_in(line) * 1024;
    if (line.starts_with("VmHWM:")) memory.peak = kilobytes_in(line) * 1024;
  }
  return memory;
}

}  // namespace tandem
