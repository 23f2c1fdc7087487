// What g++ calls from code compiled with -fsanitize=thread, in place of the thread sanitizer's runtime: memory accesses
// go to the launch that is running on this OS thread, and everything else is done as without the option. Host code in
// such files finds no launch. Of its atomics there are what std::shared_ptr needs and a load; others are for the linker
// to miss.
#include <cstddef>
#include <cstdint>

#include "tests/engine/kernels/cuda_emulator/races.h"

namespace {

using tandem::cuda_emulator::Races;

inline void note(const void* at, std::size_t bytes, Races::Kind kind, const void* code) {
  if (Races* const here = tandem::cuda_emulator::races; here != nullptr) here->access(at, bytes, kind, code);
}

}  // namespace

// NOLINTBEGIN(bugprone-reserved-identifier, readability-identifier-naming): the compiler's names
extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}

#define TANDEM_ACCESS(name, bytes, kind)                             \
  void __tsan_##name(void* at) {                                     \
    note(at, bytes, Races::Kind::kind, __builtin_return_address(0)); \
  }
#define TANDEM_ACCESSES(bytes)                      \
  TANDEM_ACCESS(read##bytes, bytes, read)           \
  TANDEM_ACCESS(write##bytes, bytes, write)         \
  TANDEM_ACCESS(unaligned_read##bytes, bytes, read) \
  TANDEM_ACCESS(unaligned_write##bytes, bytes, write)
TANDEM_ACCESSES(1)
TANDEM_ACCESSES(2)
TANDEM_ACCESSES(4)
TANDEM_ACCESSES(8)
TANDEM_ACCESSES(16)
void __tsan_read_range(void* at, std::size_t bytes) {
  note(at, bytes, Races::Kind::read, __builtin_return_address(0));
}
void __tsan_write_range(void* at, std::size_t bytes) {
  note(at, bytes, Races::Kind::write, __builtin_return_address(0));
}

std::uint32_t __tsan_atomic32_load(const std::uint32_t* at, int) {
  return __atomic_load_n(at, __ATOMIC_SEQ_CST);
}
std::uint32_t __tsan_atomic32_fetch_add(std::uint32_t* at, std::uint32_t value, int) {
  return __atomic_fetch_add(at, value, __ATOMIC_SEQ_CST);
}
std::uint32_t __tsan_atomic32_fetch_sub(std::uint32_t* at, std::uint32_t value, int) {
  return __atomic_fetch_sub(at, value, __ATOMIC_SEQ_CST);
}

}  // extern "C"
// NOLINTEND(bugprone-reserved-identifier, readability-identifier-naming)
