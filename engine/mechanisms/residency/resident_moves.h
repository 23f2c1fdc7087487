// Blocks on their way into a set of residents, as gather_lists_cuda() takes what swap_residents_cuda() has listed.
#pragma once

#include "engine/kernels/gather.h"
#include "engine/kv/kv_store.h"
#include "engine/mechanisms/residency/kernels/residency.h"
#include "engine/mechanisms/residency/resident_set.h"

namespace tandem {

/// Of one list of a layer. `from`: the pool that holds the pages, `residents`: ResidentSet::pages. Everything that is
/// listed is on the device, and as many moves as the swap says.
inline Pieces resident_moves(const KvStore& kv, const ResidentSet& set, std::uint32_t layer, std::uint32_t list,
                             const char* from, char* residents, const ResidentSwap& swap) {
  const KvShape& shape = set.shape;
  return {.from = from + kv.k_offset(0, list),
          .from_stride = shape.slot_bytes(),
          .to = residents + set.page_offset(layer, 0, 0, list),
          .to_stride = shape.slot_bytes(),
          .bytes = (set.per_head ? 1 : shape.kv_heads) * shape.page_bytes(),
          .from_slots = swap.from,
          .to_slots = swap.to,
          .count = swap.slots * swap.pages_per_block,
          .slots_on_host = false,
          .device_count = swap.moves};
}

}  // namespace tandem
