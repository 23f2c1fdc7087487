// Pieces of memory to copy together on a GPU (cuda_copy_pieces).
#pragma once

#include <vector>

#include "engine/device/cuda/runtime.h"

namespace tandem {

class CopyList {
 public:
  /// A piece from a buffer that begins at `from_buffer` to one that begins at `to_buffer`; places in bytes from there.
  /// Neighbours that stay neighbours are one piece, but none reaches over a buffer's end into one that was allocated
  /// behind it, which a GPU's driver refuses to copy. Nothing is none: CUDA does not say what it does with those.
  void add(char* to_buffer, std::size_t to, const char* from_buffer, std::size_t from, std::size_t bytes) {
    if (bytes == 0) return;
    const bool same = to_buffer == last_to_ && from_buffer == last_from_;
    last_to_ = to_buffer;
    last_from_ = from_buffer;
    if (same && static_cast<const char*>(from_.back()) + bytes_.back() == from_buffer + from &&
        static_cast<char*>(to_.back()) + bytes_.back() == to_buffer + to) {
      bytes_.back() += bytes;
      return;
    }
    to_.push_back(to_buffer + to);
    from_.push_back(from_buffer + from);
    bytes_.push_back(bytes);
  }

  std::size_t pieces() const { return bytes_.size(); }
  void copy(CopyWay way, CudaStream stream) const { cuda_copy_pieces(to_, from_, bytes_, way, stream); }

 private:
  std::vector<void*> to_;
  std::vector<const void*> from_;
  std::vector<std::size_t> bytes_;
  const char *last_to_ = nullptr, *last_from_ = nullptr;  // buffers of the last piece
};

}  // namespace tandem
