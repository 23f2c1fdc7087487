#include "engine/common/huge_memory.h"

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <sys/mman.h>

#include "engine/common/cgroup.h"
#include "engine/common/error.h"

namespace tandem {

std::shared_ptr<std::byte> huge_memory(std::size_t bytes, std::string_view what) {
  constexpr std::size_t kHugePage = std::size_t{2} << 20;
  // Older kernels begin a mapping anywhere, and the first huge page after that.
  const std::size_t mapped = bytes + kHugePage;
  void* const at = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED)
    throw_run_error("{:.1f} GB of memory for {} cannot be had: {}.", double(bytes) * 1e-9, what, std::strerror(errno));
  madvise(at, mapped, MADV_HUGEPAGE);  // a system without them says no, which is fine
  const std::size_t behind = reinterpret_cast<std::uintptr_t>(at) % kHugePage;
  return {static_cast<std::byte*>(at) + (kHugePage - behind) % kHugePage,
          [at, mapped](std::byte*) { munmap(at, mapped); }};
}

std::size_t bytes_in_huge_pages() {
  return kilobytes_in("/proc/self/smaps_rollup", "AnonHugePages");
}

}  // namespace tandem
