// Host memory behind the buffers of the devices that have no memory of their own (`sim`, `emu`).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/device/buffer.h"

namespace tandem {

/// Hands out zeroed, page-aligned, lazily touched memory and remembers the names of buffers for error sentences.
/// A buffer may outlive its pool. Not thread-safe, except for the release of buffers.
class MemoryPool {
 public:
  /// `device_bytes`: what the device memory holds, 0 for no limit. `owner` names the device in error sentences.
  MemoryPool(std::uint64_t device_bytes, std::string owner);

  /// RunError when the device memory would overflow or the machine has no address space left.
  std::shared_ptr<Allocation> allocate(Memory memory, std::size_t bytes, std::string name);

  std::string name(BufferId id) const;  // "kv.host", or "buffer 7" for an id this pool never gave out

 private:
  std::uint64_t device_bytes_;
  std::string owner_;
  std::shared_ptr<std::atomic<std::uint64_t>> used_;
  std::vector<std::string> names_;  // of buffer id + 1
};

}  // namespace tandem
