// Blocks of a sequence that are resident on the device, per layer, while all of them are in host memory (ScoutAttention
// section 3.2). A *candidate* is a filled block behind the sinks, numbered as in the digest index that blocks are
// chosen by; the sinks and the newest, partly filled block stay in the KV store's device tier.
//   pages:   [layer][slot][page of the block][kv_head]{K [16][D], V [16][D]}, as KvStore lays out a run of its slots
//   table:   [layer][list][slot] u32: the candidate that a slot holds
//   chosen, missing: [layer][list][1 + slots] u32: a count, then candidates in ascending order: the layer's latest
//            choice, and what of it was not resident when it was made
//   missing_on_host: [2][list][1 + slots] u32: of the layers that are under way on the host, by layer % 2
// A list is a KV head where each chooses for itself, and one for all otherwise. How many candidates and residents there
// are is known to the control thread, which ones to operation bodies only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/common/error.h"
#include "engine/device/device.h"
#include "engine/kernels/scope.h"
#include "engine/kernels/topk.h"
#include "engine/kv/host_pages.h"
#include "engine/kv/kv_store.h"

namespace tandem {

struct ResidentSet {
  static constexpr const char* kName = "resident set";
  SequenceId sequence = 0;
  KvShape shape;
  std::uint32_t digests = 0;              // id of the digest index
  std::uint32_t block = 0;                // tokens
  std::uint32_t begin = 0;                // token: candidate 0 starts here
  std::uint32_t slots = 0;                // most residents of a list
  std::uint32_t window = 0;               // tokens behind the candidates that stay in the KV store
  std::uint32_t first_layer = 0;          // layers before it have no candidates
  bool per_head = false;                  // KV heads choose for themselves
  Reduce reduce = Reduce::max;            // within a KV head
  std::uint32_t lists = 1;                // 1, or one per KV head
  std::vector<std::uint32_t> candidates;  // [layer]
  DeviceBuffer pages, table, chosen, missing;
  HostBuffer missing_on_host;
  std::shared_ptr<HostPages> host_pages;  // of the candidates
  std::vector<Event> changed;             // [layer] the recall that last changed table and pages
  std::vector<Event> read;                // [layer] the attention that last read them

  std::uint32_t list_of(std::uint32_t kv_head) const { return per_head ? kv_head : 0; }
  std::uint32_t pages_per_block() const { return block / kPageTokens; }
  std::uint32_t residents(std::uint32_t layer) const { return std::min(candidates[layer], slots); }
  /// Whether a choice may name a block that is not resident.
  bool open(std::uint32_t layer) const { return candidates[layer] > slots; }
  /// Tokens before which all whole blocks are candidates, of a context of so many.
  std::uint32_t filled(std::uint32_t tokens) const {
    return std::max((tokens - std::min(window, tokens)) / block * block, begin);
  }
  Scope scope() const { return per_head ? Scope::kv_head : Scope::layer; }
  /// The candidates' pages, as numbers of the KV store.
  Range page_range(std::uint32_t layer) const {
    return {begin / kPageTokens, begin / kPageTokens + candidates[layer] * pages_per_block()};
  }

  std::size_t block_bytes() const { return pages_per_block() * shape.slot_bytes(); }  // all KV heads of a layer
  std::size_t page_offset(std::uint32_t layer, std::uint32_t slot, std::uint32_t page, std::uint32_t kv_head) const {
    return ((std::size_t{layer} * slots + slot) * pages_per_block() + page) * shape.slot_bytes() +
           kv_head * shape.page_bytes();
  }
  std::size_t table_offset(std::uint32_t layer, std::uint32_t list) const {  // in u32
    return (std::size_t{layer} * lists + list) * slots;
  }
  std::size_t choice_offset(std::uint32_t layer_or_half, std::uint32_t list) const {  // in u32
    return (std::size_t{layer_or_half} * lists + list) * (1 + std::size_t{slots});
  }
  std::size_t choice_bytes() const { return lists * (1 + std::size_t{slots}) * sizeof(std::uint32_t); }  // of a layer

  std::size_t bytes(Tier tier) const {
    return tier == Tier::host ? missing_on_host.bytes()
                              : pages.bytes() + table.bytes() + chosen.bytes() + missing.bytes();
  }
};

/// Memory for so many residents, none of which is there yet; what ran before keeps its own.
inline void make_resident_slots(Device& device, ResidentSet& set, std::uint32_t slots) {
  TANDEM_CHECK(slots > 0, "no slots");
  const std::uint32_t layers = set.shape.layers;
  set.slots = slots;
  set.pages = device.allocate_device(std::size_t{layers} * slots * set.block_bytes(), "resident blocks");
  set.table = device.allocate_device(std::size_t{layers} * set.lists * slots * sizeof(std::uint32_t), "resident table");
  set.chosen = device.allocate_device(layers * set.choice_bytes(), "chosen blocks");
  set.missing = device.allocate_device(layers * set.choice_bytes(), "missing blocks");
  set.missing_on_host = device.allocate_host(2 * set.choice_bytes(), "missing blocks on the host");
}

/// Without candidates yet.
inline ResidentSet make_resident_set(Device& device, SequenceId sequence, const KvShape& shape, std::uint32_t begin,
                                     std::uint32_t block, std::uint32_t slots, bool per_head) {
  TANDEM_CHECK(block % kPageTokens == 0 && block > 0 && begin % block == 0, "resident blocks of {} tokens from {}",
               block, begin);
  ResidentSet set;
  set.sequence = sequence;
  set.shape = shape;
  set.block = block;
  set.begin = begin;
  set.per_head = per_head;
  set.lists = per_head ? shape.kv_heads : 1;
  set.candidates.resize(shape.layers);
  set.changed.resize(shape.layers);
  set.read.resize(shape.layers);
  set.host_pages = std::make_shared<HostPages>(shape.layers);
  make_resident_slots(device, set, slots);
  return set;
}

}  // namespace tandem
