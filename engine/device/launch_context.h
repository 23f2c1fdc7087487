// What an operation of a device lane gets on a GPU in place of its body's BodyContext: the stream that it puts kernels
// and copies into, device pointers, and room for what a launch needs beside its buffers.
#pragma once

#include <algorithm>
#include <deque>
#include <ranges>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "engine/device/cuda/launch_array.h"
#include "engine/device/cuda/runtime.h"
#include "engine/device/cuda_trace.h"
#include "engine/device/device.h"

namespace tandem {

/// Room for arguments: device memory with as much pinned memory beside it, which operations use and leave again. A
/// ring, of which the oldest part is free when its operation is done. Of one control thread.
class LaunchArena {
 public:
  struct Room {
    std::byte* host = nullptr;    // pinned
    std::byte* device = nullptr;  // aligned to 256 bytes
  };

  explicit LaunchArena(std::size_t bytes);

  /// Room of the operation that is being launched. Waits for older ones where the ring is full of their rooms; where it
  /// is too small altogether it is replaced by a larger one.
  Room take(std::size_t bytes);
  /// What was taken since the last call is free when `end` is reached. `end` must stay as it is until then.
  void launched(const CudaMark& end);
  void all_done();  // nothing that was taken is in use any more

 private:
  struct Used {
    std::size_t begin = 0, end = 0;
    const CudaMark* done = nullptr;  // nullptr: of the operation that is being launched
  };
  void grow(std::size_t bytes);

  struct Memory {
    CudaMemory device;
    PinnedMemory host;
  };
  Memory memory_;
  std::vector<Memory> old_;  // may be in use until all is done
  std::deque<Used> used_;    // oldest first
  std::size_t next_ = 0;     // where the next room may begin
};

/// Device memory that operations of one stream work in, each where the one before did: the stream keeps them apart.
class LaunchScratch {
 public:
  std::byte* take(std::size_t bytes);   // aligned to 256
  void next_operation() { next_ = 0; }  // what was taken belongs to the one before
  void all_done() { old_.clear(); }     // nothing is in use

 private:
  CudaMemory memory_;
  std::vector<CudaMemory> old_;  // too small; may be in use
  std::size_t next_ = 0;
};

/// Numbers that operations leave for when all is done: pinned, each its own until then.
class LaunchCounts {
 public:
  std::uint32_t* take(std::uint32_t n);  // at most kChunk
  void all_done() { taken_ = 0; }
  static constexpr std::uint32_t kChunk = 16384;

 private:
  std::vector<PinnedMemory> chunks_;
  std::size_t taken_ = 0;
};

/// What all launches of a stream share.
struct LaunchRooms {
  LaunchArena& uploads;
  LaunchScratch& scratch;
  LaunchCounts& counts;
};

/// A launch that knows on the control thread what it moves settles its cost like a body (BodyContext::settle).
class LaunchContext : public BodyContext {
 public:
  /// `begin` is recorded when the stream is first asked for: what the host prepares before is no time of the GPU.
  LaunchContext(const Op& op, CudaStream stream, LaunchRooms rooms, CudaMark& begin)
      : BodyContext(op, Reach::gpu), stream_(stream), rooms_(rooms), begin_(&begin) {}

  CudaStream stream() {
    if (begin_ != nullptr) std::exchange(begin_, nullptr)->record(stream_);
    return stream_;
  }

  /// Device memory with these values for what is put into the stream from here on, until the operation is done.
  template <std::ranges::contiguous_range Values>
  auto upload(const Values& list) -> const std::ranges::range_value_t<Values>* {
    using T = std::ranges::range_value_t<Values>;
    static_assert(std::is_trivially_copyable_v<T>);
    const std::span<const T> values(list);
    if (values.empty()) return nullptr;
    const LaunchArena::Room room = rooms_.uploads.take(values.size_bytes());
    std::copy_n(values.data(), values.size(), reinterpret_cast<T*>(room.host));
    cuda_copy(room.device, room.host, values.size_bytes(), stream());
    return reinterpret_cast<const T*>(room.device);
  }

  /// Several arrays by one copy: where each begins, aligned as T is.
  template <class T>
  std::vector<const T*> upload_each(const std::vector<std::span<const T>>& arrays) {
    static_assert(std::is_trivially_copyable_v<T>);
    std::size_t all = 0;
    for (const std::span<const T>& values : arrays) all += values.size();
    const LaunchArena::Room room = rooms_.uploads.take(std::max<std::size_t>(all, 1) * sizeof(T));
    auto* const host = reinterpret_cast<T*>(room.host);
    std::vector<const T*> begins;
    begins.reserve(arrays.size());
    std::size_t next = 0;
    for (const std::span<const T>& values : arrays) {
      begins.push_back(reinterpret_cast<const T*>(room.device) + next);
      std::copy(values.begin(), values.end(), host + next);
      next += values.size();
    }
    if (all > 0) cuda_copy(room.device, room.host, all * sizeof(T), stream());
    return begins;
  }

  /// upload() for a kernel that takes a LaunchArray: few values go along with the launch, more are copied before it.
  template <std::ranges::contiguous_range Values>
  auto pass(const Values& list) {
    using T = std::ranges::range_value_t<Values>;
    return list.size() <= LaunchArray<T>::kHere ? LaunchArray<T>(std::span<const T>(list))
                                                : LaunchArray<T>(upload(list));
  }

  /// Device memory of this operation alone, with anything in it.
  template <class T>
  T* scratch(std::size_t count) {
    return reinterpret_cast<T*>(rooms_.scratch.take(std::max<std::size_t>(count, 1) * sizeof(T)));
  }

  /// The operation's cost is `without`, plus `each` times the counts that kernels have made, instead of the declared
  /// upper bound. Several calls add up, with the same `without`.
  void settle_by(const std::uint32_t* counts /*[n]*/, std::uint32_t n, const Cost& each, const Cost& without);
  std::vector<CudaTrace::Settled>& settled() { return settled_; }

 private:
  CudaStream stream_;
  LaunchRooms rooms_;
  CudaMark* begin_;
  std::vector<CudaTrace::Settled> settled_;
};

/// InputError: what was asked for has a body and no launch, or not this part of one. "Averages of weights have".
[[noreturn]] void throw_not_on_gpu(std::string_view what_has);

}  // namespace tandem
