// What an operation of a device lane gets on a GPU in place of its body's BodyContext: the stream that it puts kernels
// and copies into, device pointers, and room for what a launch needs beside its buffers.
#pragma once

#include <algorithm>
#include <deque>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "engine/device/cuda/runtime.h"
#include "engine/device/device.h"

namespace tandem {

/// Room in device memory, with as much pinned memory beside it where that is wanted, that operations use and leave
/// again: a ring, of which the oldest part is free when its operation is done. Of one control thread.
class LaunchArena {
 public:
  struct Room {
    std::byte* host = nullptr;    // pinned; nullptr without
    std::byte* device = nullptr;  // aligned to 256 bytes
  };

  LaunchArena(std::size_t bytes, bool with_host);

  /// Room of the operation that is being launched. Waits for older ones where the ring is full of their rooms; where it
  /// is too small altogether it is replaced by a larger one.
  Room take(std::size_t bytes);
  /// What was taken since the last call is free when `end` is reached. `end` must stay as it is until then.
  void launched(const CudaMark& end);
  /// Nothing that was taken is in use any more.
  void all_done();

 private:
  struct Used {
    std::size_t begin = 0, end = 0;
    const CudaMark* done = nullptr;  // nullptr: of the operation that is being launched
  };
  void grow(std::size_t bytes);

  bool with_host_;
  CudaMemory device_;
  PinnedMemory host_;
  std::vector<CudaMemory> old_device_;  // may be in use until all is done
  std::vector<PinnedMemory> old_host_;
  std::deque<Used> used_;  // oldest first
  std::size_t next_ = 0;   // where the next room may begin
};

class LaunchContext : public BodyContext {
 public:
  LaunchContext(const Op& op, CudaStream stream, LaunchArena& uploads, LaunchArena& scratch)
      : BodyContext(op), stream_(stream), uploads_(uploads), scratch_(scratch) {}

  CudaStream stream() const { return stream_; }

  /// Device memory with these values for what is put into the stream from here on, until the operation is done.
  template <class T>
  const T* upload(std::span<const T> values) {
    static_assert(std::is_trivially_copyable_v<T>);
    if (values.empty()) return nullptr;
    const LaunchArena::Room room = uploads_.take(values.size_bytes());
    std::copy_n(values.data(), values.size(), reinterpret_cast<T*>(room.host));
    cuda_copy(room.device, room.host, values.size_bytes(), stream_);
    return reinterpret_cast<const T*>(room.device);
  }
  template <class T>
  const T* upload(const std::vector<T>& values) {
    return upload(std::span<const T>(values));
  }

  /// Device memory of this operation alone, with anything in it.
  template <class T>
  T* scratch(std::size_t count) {
    return reinterpret_cast<T*>(scratch_.take(std::max<std::size_t>(count, 1) * sizeof(T)).device);
  }

 private:
  CudaStream stream_;
  LaunchArena& uploads_;
  LaunchArena& scratch_;
};

/// InputError: what was asked for has a body and no launch, or not this part of one. "Averages of weights have".
[[noreturn]] void no_cuda_code(std::string_view what_has);

}  // namespace tandem
