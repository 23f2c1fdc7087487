// Pieces of memory to copy together on a GPU (cuda_copy_pieces).
#pragma once

#include <vector>

#include "engine/device/cuda/runtime.h"

namespace tandem {

class CopyList {
 public:
  /// Neighbours that stay neighbours are one piece, and nothing is none: CUDA does not say what it does with those.
  void add(void* to, const void* from, std::size_t bytes) {
    if (bytes == 0) return;
    if (!bytes_.empty() && static_cast<const char*>(from_.back()) + bytes_.back() == from &&
        static_cast<char*>(to_.back()) + bytes_.back() == to) {
      bytes_.back() += bytes;
      return;
    }
    to_.push_back(to);
    from_.push_back(from);
    bytes_.push_back(bytes);
  }
  void copy(CudaStream stream) const { cuda_copy_pieces(to_, from_, bytes_, stream); }

 private:
  std::vector<void*> to_;
  std::vector<const void*> from_;
  std::vector<std::size_t> bytes_;
};

}  // namespace tandem
