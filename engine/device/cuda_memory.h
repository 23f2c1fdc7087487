// Buffers of `cuda`: memory of the GPU, pinned memory of the host, and ordinary memory of what only the host touches.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/device/buffer.h"
#include "engine/device/cuda/runtime.h"
#include "engine/device/memory.h"

namespace tandem {

/// Gives out memory, and keeps what nobody needs any more until it may be given back: giving it back waits for all
/// streams, one of which may wait for the very thread that lets go of a buffer. A buffer may outlive its pool.
class CudaMemoryPool {
 public:
  /// Of a control thread. What is there is not zero, but for Memory::host_only. RunError where there is no room.
  std::shared_ptr<Allocation> allocate(Memory memory, std::size_t bytes, std::string name);
  /// Gives back what nobody needs. Every stream must be idle, or wait for nothing that this thread does.
  void sweep();

 private:
  struct Graveyard {
    std::mutex mutex;
    std::vector<std::shared_ptr<std::byte>> dead;
  };

  std::shared_ptr<Graveyard> graveyard_ = std::make_shared<Graveyard>();
  MemoryPool host_only_{0, "the host"};
  BufferId buffers_ = 0;
};

}  // namespace tandem
