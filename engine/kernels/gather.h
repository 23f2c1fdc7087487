// Moving KV between host and device: equal pieces at slots of two pools (pages, or tokens of a packed set).
//
// Two ways over the link. DMA: one batched call that names every piece, best for large or few pieces; captured into a
// CUDA graph, or in the default stream, it is a copy per piece, since the batched call can be in neither. Zero copy: a
// kernel that reads (or writes) pinned memory itself, best for many small ones, but it takes multiprocessors from what
// computes beside it. Which is faster depends on both size and count and on the machine: the benchmark of `gather`
// says.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/common/error.h"
#include "engine/device/cuda/launch_array.h"
#include "engine/device/cuda/runtime.h"

namespace tandem {

/// Piece i: `bytes` bytes from `from` + from_slots[i] * from_stride to `to` + to_slots[i] * to_stride. Pools, strides
/// and bytes are multiples of 16. Host memory is pinned. Pieces written must not overlap.
struct Pieces {
  const void* from = nullptr;
  std::size_t from_stride = 0;
  void* to = nullptr;
  std::size_t to_stride = 0;
  std::size_t bytes = 0;
  const std::uint32_t* from_slots = nullptr;  // [count]; nullptr: 0, 1, 2, ...
  const std::uint32_t* to_slots = nullptr;    // [count]; nullptr: 0, 1, 2, ...
  std::uint32_t count = 0;
  /// True: the slots lie in pinned memory, where the host reads them for DMA at the call and the kernel when it runs.
  /// False: in device memory, where a selection left them; then only zero copy is possible.
  bool slots_on_host = true;
  /// Device or pinned memory: how many pieces there are, at most `count`; nullptr: `count`. Zero copy only.
  const std::uint32_t* device_count = nullptr;
};

enum class GatherWay : std::uint8_t { dma, zero_copy };

/// One way: InputError where it is DMA and the slots or their number are not on the host. No pieces, or pieces of 0
/// bytes, are nothing to do, whatever the way.
void gather_cuda(const Pieces& pieces, GatherWay way, CudaStream stream);

/// Zero copy of several lists of pieces by one kernel, as one long list: whoever has few pieces leaves the threads to
/// the others. All pieces have the same size, n is at most kMostLists, and each list is as check_pieces() wants it.
/// all_bytes: of all lists together, each with as many pieces as it may have, below 2^35.
void gather_lists_cuda(const LaunchArray<Pieces>& lists /*[n]*/, std::uint32_t n, std::size_t all_bytes,
                       CudaStream stream);
constexpr std::uint32_t kMostLists = 256;
/// LogicError where pools, strides and pieces are not in units of 16 bytes.
inline void check_pieces(const Pieces& pieces) {
  const auto number_of = [](const void* at) { return reinterpret_cast<std::uintptr_t>(at); };
  TANDEM_CHECK(
      (pieces.bytes | pieces.from_stride | pieces.to_stride | number_of(pieces.from) | number_of(pieces.to)) % 16 == 0,
      "Pieces of {} bytes at strides of {} and {} are not all multiples of 16.", pieces.bytes, pieces.from_stride,
      pieces.to_stride);
}

}  // namespace tandem
