// Pieces of memory to copy together on a GPU (cuda_copy_pieces).
#pragma once

#include <vector>

#include "engine/device/cuda/runtime.h"

namespace tandem {

class CopyList {
 public:
  /// Pieces that go from one buffer to one other; places in bytes from where each begins.
  class Between {
   public:
    /// Neighbours that stay neighbours are one piece, and nothing is none: CUDA does not say what it does with those.
    void add(std::size_t to, std::size_t from, std::size_t bytes) { list_->add(to_ + to, from_ + from, bytes, *this); }

   private:
    friend class CopyList;
    Between(CopyList& list, char* to, const char* from) : list_(&list), to_(to), from_(from) {}
    CopyList* list_;
    char* to_;
    const char* from_;
  };

  /// `to`, `from`: where two buffers begin. A piece never reaches over a buffer's end into one that was allocated
  /// behind it, which a GPU's driver refuses to copy.
  Between between(void* to, const void* from) {
    return {*this, static_cast<char*>(to), static_cast<const char*>(from)};
  }

  std::size_t pieces() const { return bytes_.size(); }
  void copy(CopyWay way, CudaStream stream) const { cuda_copy_pieces(to_, from_, bytes_, way, stream); }

 private:
  void add(char* to, const char* from, std::size_t bytes, const Between& buffers) {
    if (bytes == 0) return;
    const bool same = buffers.to_ == last_to_ && buffers.from_ == last_from_;
    last_to_ = buffers.to_;
    last_from_ = buffers.from_;
    if (same && static_cast<const char*>(from_.back()) + bytes_.back() == from &&
        static_cast<char*>(to_.back()) + bytes_.back() == to) {
      bytes_.back() += bytes;
      return;
    }
    to_.push_back(to);
    from_.push_back(from);
    bytes_.push_back(bytes);
  }

  std::vector<void*> to_;
  std::vector<const void*> from_;
  std::vector<std::size_t> bytes_;
  const char *last_to_ = nullptr, *last_from_ = nullptr;  // buffers of the last piece
};

}  // namespace tandem
