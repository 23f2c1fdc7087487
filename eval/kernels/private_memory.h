// Memory for benches that read more than the caches hold: in huge pages where the system has them, as the engine's KV.
#pragma once

#include <cstddef>
#include <cstring>
#include <new>
#include <sys/mman.h>

namespace tandem {

class PrivateMemory {
 public:
  explicit PrivateMemory(std::size_t bytes) : bytes_(bytes) {
    void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) throw std::bad_alloc();
    data_ = static_cast<char*>(at);
    madvise(data_, bytes, MADV_HUGEPAGE);
    std::memset(data_, 1, bytes);
  }
  ~PrivateMemory() { munmap(data_, bytes_); }
  PrivateMemory(const PrivateMemory&) = delete;
  PrivateMemory& operator=(const PrivateMemory&) = delete;
  char* data() { return data_; }
  const char* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  std::size_t bytes_;
  char* data_ = nullptr;
};

}  // namespace tandem
