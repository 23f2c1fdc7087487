// Buffers of `cuda`: memory of the GPU, pinned memory of the host, and ordinary memory of what only the host touches.
#pragma once

#include <algorithm>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "engine/common/error.h"
#include "engine/device/buffer.h"
#include "engine/device/cuda/runtime.h"
#include "engine/device/memory.h"

namespace tandem {

/// Gives out memory, and keeps what nobody needs any more until it may be given back: giving it back waits for all
/// streams, one of which may wait for the very thread that lets go of a buffer. A buffer may outlive its pool.
class CudaMemoryPool {
 public:
  /// Of a control thread. What is there is not zero, but for Memory::host_only. RunError where there is no room.
  std::shared_ptr<Allocation> allocate(Memory memory, std::size_t bytes, std::string name) {
    if (memory == Memory::host_only) {
      auto allocation = host_only_.allocate(memory, bytes, std::move(name));
      allocation->id = ++buffers_;
      return allocation;
    }
    const CudaPlace place = memory == Memory::device ? CudaPlace::device : CudaPlace::pinned;
    const std::size_t taken = std::max<std::size_t>(bytes, 1);
    const auto take = [&] {
      return std::shared_ptr<std::byte>(static_cast<std::byte*>(cuda_allocate(place, taken)),
                                        [place, taken](std::byte* data) { cuda_release(place, data, taken); });
    };
    std::shared_ptr<std::byte> data;
    try {
      try {
        data = take();
      } catch (const CudaNoRoom&) {  // what is kept may be what is missing
        sweep();
        data = take();
      }
    } catch (const CudaNoRoom& error) {
      throw_run_error("Buffer '{}' needs {} bytes of {} and does not get them. {} Lower {}, the batch or the length.",
                      name, bytes, memory == Memory::device ? "the GPU's memory" : "pinned memory", error.what(),
                      memory == Memory::device ? "--device-kv" : "--host-kv");
    }
    std::byte* const at = data.get();
    auto bury = [data = std::move(data), graveyard = graveyard_](std::byte*) mutable {
      const std::lock_guard lock(graveyard->mutex);
      graveyard->dead.push_back(std::move(data));
    };
    return std::make_shared<Allocation>(Allocation{
        .id = ++buffers_, .memory = memory, .bytes = bytes, .name = std::move(name), .data = {at, std::move(bury)}});
  }

  /// Gives back what nobody needs. Every stream must be idle, or wait for nothing that this thread does.
  void sweep() {
    std::vector<std::shared_ptr<std::byte>> dead;  // released behind the lock
    const std::lock_guard lock(graveyard_->mutex);
    dead.swap(graveyard_->dead);
  }

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
