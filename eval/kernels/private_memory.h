// Memory for benches that read more than the caches hold: in huge pages where the system has them, as the engine's KV.
#pragma once

#include <cstring>

#include "engine/common/huge_memory.h"

namespace tandem {

class PrivateMemory {
 public:
  explicit PrivateMemory(std::size_t bytes) : bytes_(bytes), data_(huge_memory(bytes, "a bench")) {
    std::memset(data_.get(), 1, bytes);
  }
  char* data() { return reinterpret_cast<char*>(data_.get()); }
  const char* data() const { return reinterpret_cast<const char*>(data_.get()); }
  std::size_t bytes() const { return bytes_; }

 private:
  std::size_t bytes_;
  std::shared_ptr<std::byte> data_;
};

}  // namespace tandem
