// The KV store: pages of 16 tokens in two tiers, shared between sequences by reference count.
//
// Words: a *block* here is 16 tokens of a sequence in one layer, by number; a method's own blocks are one or more of
// them. A *slot* is memory for one block, all KV heads: [kv_head]{K [16][D], V [16][D]} of KvShape::type. A *page* is
// one KV head's part of it, or a whole block where heads do not matter. Slots of a tier lie in one buffer, reserved
// whole and touched lazily. Forks share slots; a shared one is never written (the last, partly filled one is copied).
//
// Slot life: absent -> filling(event) -> ready -> draining(events) -> absent. The store keeps the events; whoever reads
// a slot waits for append_filled()'s events, whoever gets a recycled slot waits for the events that allocation hands
// out. Only the store frees. Not thread safe: the control thread owns it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/device/device.h"
#include "engine/kernels/tensor.h"
#include "engine/kv/free_slots.h"

namespace tandem {

using SequenceId = std::uint32_t;
enum class Tier : std::uint8_t { device, host };

inline constexpr std::uint32_t kPageTokens = 16;
constexpr std::uint32_t blocks_for(std::uint32_t tokens) {
  return tokens / kPageTokens + (tokens % kPageTokens != 0 ? 1 : 0);
}

struct KvShape {
  std::uint32_t layers = 0, kv_heads = 0, head_dim = 0;
  DType type = DType::f32;
  std::size_t vector_bytes() const { return head_dim * size_of(type); }        // K or V of one token and head
  std::size_t page_bytes() const { return 2 * kPageTokens * vector_bytes(); }  // K and V of one head
  std::size_t slot_bytes() const { return page_bytes() * kv_heads; }
  std::size_t token_bytes() const { return slot_bytes() / kPageTokens * layers; }  // all layers, K and V
};

struct KvBudget {
  std::size_t device_bytes = std::size_t{4} << 30;
  std::size_t host_bytes = std::size_t{8} << 30;
};

struct SlotCopy {
  std::uint32_t from = 0, to = 0;
};

class KvStore {
 public:
  static constexpr std::uint32_t kNoSlot = 0xFFFFFFFFu;

  KvStore(Device& device, const KvShape& shape, const KvBudget& budget);

  const KvShape& shape() const { return shape_; }
  const DeviceBuffer& device_buffer() const { return device_buffer_; }
  const HostBuffer& host_buffer() const { return host_buffer_; }

  SequenceId create();
  /// A sequence with the same tokens that shares every slot of `from`, in both tiers.
  SequenceId fork(SequenceId from);
  /// Appends the tokens of whole pages from tokens.begin on to `to`, which ends with a whole page and then shares the
  /// device slots of `from` for them.
  void share(SequenceId to, SequenceId from, Range tokens);
  /// Frees the sequence's references. Every operation that used them must be done.
  void destroy(SequenceId sequence);

  std::uint32_t tokens(SequenceId id) const { return sequence(id).tokens; }
  /// Counts truncate() and privatise_tail(), after which device blocks may have other slots.
  std::uint32_t rewrites(SequenceId id) const { return sequence(id).rewrites; }
  /// Counts add_device_blocks(), after which device blocks of that layer have other slots.
  std::uint32_t restores(SequenceId id, std::uint32_t layer) const { return sequence(id).layers[layer].restores; }
  /// Whether all of these blocks are on the device; looks at single ones only where some near them were dropped.
  bool on_device(SequenceId sequence, std::uint32_t layer, Range blocks) const;
  /// Makes room for `count` more tokens on the device in every layer and counts them as present; the caller submits the
  /// writes. Appends to `after` what recycled slots must wait for. The last page must be private (see privatise_tail).
  void grow(SequenceId sequence, std::uint32_t count, std::vector<Event>& after);
  /// Forgets what was grown beyond `tokens`. Every operation on it must be done.
  void truncate(SequenceId sequence, std::uint32_t tokens);
  /// If the last, partly filled block is shared: gives the sequence slots of its own, one per layer, and returns the
  /// device-to-device copies the caller must submit before the next append; set_copied() names their event.
  std::vector<SlotCopy> privatise_tail(SequenceId sequence, std::vector<Event>& after);
  /// A slot that these copies read is written by another sequence only after `event`.
  void set_copied(std::span<const SlotCopy> copies, Event event);
  /// `reclaim` is called while the device tier lacks slots: it gives up a sequence, or returns false if it has none.
  void on_full(std::function<bool()> reclaim) { reclaim_ = std::move(reclaim); }
  /// Calls it until the device tier has so many free slots, or nothing is left to give up.
  void reclaim(std::size_t slots) {
    while (slots > free_slots(Tier::device) && reclaim_ && reclaim_()) {
    }
  }

  /// Host slots for `blocks` of one layer, and the device -> host copies that fill them.
  std::vector<SlotCopy> add_host_blocks(SequenceId sequence, std::uint32_t layer, Range blocks,
                                        std::vector<Event>& after);
  /// Device slots for those of `blocks` that are in host memory only, and the host -> device copies that fill them.
  std::vector<SlotCopy> add_device_blocks(SequenceId sequence, std::uint32_t layer, Range blocks,
                                          std::vector<Event>& after);
  /// Slots of a tier that nobody holds.
  std::size_t free_slots(Tier tier) const {
    return pool(tier).free.size() + (pool(tier).capacity - pool(tier).high_water);
  }
  /// Names the event that fills these slots.
  void set_filled(SequenceId sequence, std::uint32_t layer, Range blocks, Tier tier, Event event);
  /// Appends the events (the latest of each lane) that a reader of these blocks must wait for. Where the device
  /// launches kernels, those of the whole layer and tier: that costs less than a walk through the blocks.
  void append_filled(SequenceId sequence, std::uint32_t layer, Range blocks, Tier tier,
                     std::vector<Event>& after) const;
  /// Drops references in one tier. Slots that nobody holds are recycled once `after`, of every sharer, is done.
  void drop(SequenceId sequence, std::uint32_t layer, Range blocks, Tier tier, const std::vector<Event>& after);

  /// kNoSlot where the block is not in that tier.
  std::uint32_t slot(SequenceId sequence, std::uint32_t layer, std::uint32_t block, Tier tier) const;
  /// Slots of all these blocks; LogicError where one is not in that tier. Faster than slot() for each of many.
  void append_slots(SequenceId sequence, std::uint32_t layer, Range blocks, Tier tier,
                    std::vector<std::uint32_t>& out) const;
  /// The same with kNoSlot for those that are not there.
  void append_slots_or_none(SequenceId sequence, std::uint32_t layer, Range blocks, Tier tier,
                            std::vector<std::uint32_t>& out) const;
  std::size_t k_offset(std::uint32_t slot, std::uint32_t kv_head) const {  // in bytes from the tier's buffer
    return (std::size_t{slot} * shape_.kv_heads + kv_head) * shape_.page_bytes();
  }
  std::size_t v_offset(std::uint32_t slot, std::uint32_t kv_head) const {
    return k_offset(slot, kv_head) + kPageTokens * shape_.vector_bytes();
  }

  /// Appends the accesses of blocks [begin, end) that are present in the tier, adjacent slots as one extent. Where the
  /// device launches kernels, which are held to the buffers that they name and no more, one slot stands for all.
  void append_access(SequenceId sequence, std::uint32_t layer, Range blocks, Tier tier, Range heads, bool write,
                     std::vector<Access>& out) const;
  /// Declares that `op` reads these blocks, which are all in that tier, of all KV heads. Returns their slots.
  std::vector<std::uint32_t> declare_reads(Op& op, SequenceId sequence, std::uint32_t layer, Range blocks,
                                           Tier tier) const;
  Access slot_access(Tier tier, std::uint32_t first_slot, std::uint32_t slots, Range heads, bool write) const;

  /// Bytes of the slots a sequence refers to (shared ones count whole).
  std::size_t bytes(SequenceId id, Tier tier) const {
    return sequence(id).held[static_cast<int>(tier)] * shape_.slot_bytes();
  }
  std::size_t bytes_in_use(Tier tier) const { return pool(tier).used * shape_.slot_bytes(); }
  /// The most that was in use at once, which is what the store takes of the memory that it reserved.
  std::size_t peak_bytes(Tier tier) const { return pool(tier).high_water * shape_.slot_bytes(); }

  /// Every event handed to the store is done (the device was drained).
  void all_done();

 private:
  struct Pool {
    std::uint32_t capacity = 0, used = 0, high_water = 0;
    FreeSlots free;                         // recycled ones
    std::vector<std::uint32_t> references;  // per slot
    std::vector<Event> filled;              // per slot, where bodies run
    // Per slot: `after` of all that dropped it, by place in `lists`. A prompt's slots share a few.
    std::vector<std::uint32_t> drained;
    std::vector<std::vector<Event>> lists = {{}};
    std::vector<std::uint32_t> has_filled, has_drained;  // slots with events, some of them twice
    std::size_t budget_bytes = 0;
    const char* option = "";
  };
  struct Table {
    std::vector<std::uint32_t> slots[2];  // by tier, indexed by block
    Range dropped{0, 0};                  // device blocks among which all that were dropped are
    std::uint32_t restores = 0;
    std::vector<Event> filled[2];  // by tier, where kernels are launched: the latest of each lane
  };
  struct Sequence {
    std::uint32_t tokens = 0, rewrites = 0;
    std::vector<Table> layers;
    std::uint32_t held[2] = {0, 0};  // slots referred to, by tier
  };

  Pool& pool(Tier tier) { return pools_[static_cast<int>(tier)]; }
  const Pool& pool(Tier tier) const { return pools_[static_cast<int>(tier)]; }
  Sequence& sequence(SequenceId id);
  const Sequence& sequence(SequenceId id) const;
  /// InputError where the tier has no room for this many more slots: checked before anything is changed.
  void require(Tier tier, std::size_t slots);
  std::uint32_t take(Tier tier, std::vector<Event>& after);
  void give_back(Tier tier, std::uint32_t slot, const std::vector<Event>& after);
  /// Adds to what the next owner of a slot waits for. `after` is not empty.
  static void add_drained(Pool& pool, std::uint32_t slot, const std::vector<Event>& after);

  KvShape shape_;
  bool is_gpu_;  // Device::is_gpu(): nobody looks at single pages
  Pool pools_[2];
  DeviceBuffer device_buffer_;
  HostBuffer host_buffer_;
  std::unordered_map<SequenceId, Sequence> sequences_;
  SequenceId next_id_ = 1;
  std::function<bool()> reclaim_;
};

}  // namespace tandem
