// Which of the chosen blocks are resident on the device, and which residents give their places to those that are not
// (ScoutAttention, papers: section 3.2). Exact on every device: numbers of blocks, no arithmetic.
//
// A list of blocks is a count, then numbers in ascending order. A table says which block each slot holds, in any order.
#pragma once

#include <cstdint>

#include "engine/device/cuda/launch_array.h"
#include "engine/device/cuda/runtime.h"  // CudaStream

namespace tandem {

/// Entry of a table whose slot holds no block yet.
inline constexpr std::uint32_t kNoBlock = 0xFFFFFFFFu;

/// The choice of one list, compared with what is resident.
struct ResidentSplit {
  const std::uint32_t* selected = nullptr;  // [1 + its count]
  const std::uint32_t* table = nullptr;     // [residents], each block once, or kNoBlock
  std::uint32_t residents = 0;
  std::uint32_t* chosen = nullptr;   // [1 + selected[0]] a copy, which the next selection leaves alone
  std::uint32_t* missing = nullptr;  // [1 + selected[0]] what of it is not resident
};
void split_residents(const ResidentSplit& list);

/// The recall of one list: slot by slot, a resident that was not chosen gives its place to the next missing block,
/// until there is nobody left on one of the sides. What moves is said page by page, as gather_lists_cuda() takes it.
///
/// With an order, slots give up their blocks least recently used first, and the order becomes: slots that were left
/// alone, slots that were filled, slots whose block was chosen (hits); each part keeps its order. Then `missing` is all
/// of the choice that no slot holds, and a choice has at most as many blocks as there are slots.
struct ResidentSwap {
  const std::uint32_t* chosen = nullptr;   // [1 + its count]
  const std::uint32_t* missing = nullptr;  // [1 + its count]
  std::uint32_t* table = nullptr;          // [slots]; becomes what is resident when the pages have moved
  std::uint32_t slots = 0;
  const std::uint32_t* pages = nullptr;  // [blocks][pages_per_block]: where a block's pages lie on the host
  std::uint32_t pages_per_block = 1;
  // Out: page i moves from `from[i]`, a number of `pages`, to page to[i] = slot * pages_per_block + page of the
  // residents. By slot; *moves of them.
  std::uint32_t* from = nullptr;   // [min(slots, missing[0]) * pages_per_block]
  std::uint32_t* to = nullptr;     // the same
  std::uint32_t* moves = nullptr;  // [1]
  std::uint32_t* order = nullptr;  // [slots] the slots, least recently used first; nullptr: by number
  std::uint32_t* next = nullptr;   // [slots] scratch of the kernel, where there is an order
};
void swap_residents(const ResidentSwap& list);

/// The same on the GPU, for many lists at once. `lists` and all that it names is device memory; `pages` may be pinned.
void split_residents_cuda(const LaunchArray<ResidentSplit>& lists /*[count]*/, std::uint32_t count, CudaStream stream);
void swap_residents_cuda(const LaunchArray<ResidentSwap>& lists /*[count]*/, std::uint32_t count, CudaStream stream);

}  // namespace tandem
