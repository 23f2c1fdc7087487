#include "engine/device/cuda_memory.h"

#include <algorithm>
#include <utility>

#include "engine/common/error.h"

namespace tandem {

void CudaMemoryPool::Graveyard::add(CudaPlace place, void* data, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  dead_.push_back({place, data, bytes});
}

void CudaMemoryPool::Graveyard::sweep() {
  std::vector<Dead> dead;
  {
    const std::lock_guard lock(mutex_);
    dead.swap(dead_);
  }
  for (const Dead& one : dead) cuda_release(one.place, one.data, one.bytes);
}

std::shared_ptr<Allocation> CudaMemoryPool::allocate(Memory memory, std::size_t bytes, std::string name) {
  if (memory == Memory::host_only) {
    auto allocation = host_only_.allocate(memory, bytes, std::move(name));
    allocation->id = ++buffers_;
    return allocation;
  }
  const CudaPlace place = memory == Memory::device ? CudaPlace::device : CudaPlace::pinned;
  const std::size_t taken = std::max<std::size_t>(bytes, 1);
  const auto take = [&] { return static_cast<std::byte*>(cuda_allocate(place, taken)); };
  std::byte* data = nullptr;
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
  const auto release = [place, taken, graveyard = graveyard_](std::byte* freed) {
    graveyard->add(place, freed, taken);
  };
  return std::make_shared<Allocation>(
      Allocation{.id = ++buffers_, .memory = memory, .bytes = bytes, .name = std::move(name), .data = {data, release}});
}

}  // namespace tandem
