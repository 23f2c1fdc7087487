// Room for intermediate results of a kernel call.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace tandem {

/// `floats` floats that begin on a line of the caches, the calling thread's until it asks for the scratch of the same
/// `Use` again. One `Use` per purpose: a type that nobody else names.
template <class Use>
float* aligned_scratch(std::size_t floats) {
  constexpr std::size_t kLine = 64;
  static thread_local std::vector<float> memory;
  if (memory.size() < floats + kLine / sizeof(float)) memory.resize(floats + kLine / sizeof(float));
  void* start = memory.data();
  std::size_t space = memory.size() * sizeof(float);
  return static_cast<float*>(std::align(kLine, floats * sizeof(float), start, space));
}

}  // namespace tandem
