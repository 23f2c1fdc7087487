#include "engine/device/cuda_memory.h"

#include <algorithm>
#include <utility>

#include "engine/common/error.h"

namespace tandem {

void CudaMemoryPool::sweep() {
  std::vector<std::shared_ptr<std::byte>> dead;  // released behind the lock
  const std::lock_guard lock(graveyard_->mutex);
  dead.swap(graveyard_->dead);
}

std::shared_ptr<Allocation> CudaMemoryPool::allocate(Memory memory, std::size_t bytes, std::string name) {
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

}  // namespace tandem
