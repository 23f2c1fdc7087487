// Blocks that are resident on the device while all KV is in host memory (ScoutAttention section 3.2): which ones a
// context begins with, what becomes of a block that fills up (residency.cc); and, inside a step, a layer's choice split
// by residency, attention over its missing blocks on the host while the device still computes the layer before, and the
// recall of what is missed too often (sections 3.3 and 3.4, split_and_recall.cc). Or the residents are a buffer of more
// blocks than one choice has: a missing block takes the place of the one that was chosen longest ago.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/common/error.h"
#include "engine/device/device.h"
#include "engine/kernels/gather.h"
#include "engine/kernels/scope.h"
#include "engine/kernels/topk.h"
#include "engine/kv/host_pages.h"
#include "engine/kv/kv_store.h"
#include "engine/kv/link_pieces.h"
#include "engine/mechanisms/residency/kernels/residency.h"
#include "engine/runtime/mechanism.h"
#include "engine/runtime/selection.h"

namespace tandem {

// Blocks of a sequence that are resident on the device, per layer, while all of them are in host memory (ScoutAttention
// section 3.2). A *candidate* is a filled block behind the sinks, numbered as in the digest index that blocks are
// chosen by; the sinks and the newest, partly filled block stay in the KV store's device tier.
//   pages:   [layer][slot][page of the block][kv_head]{K [16][D], V [16][D]}, as KvStore lays out a run of its slots
//   table:   [layer][list][slot] u32: the candidate that a slot holds, or kNoBlock
//   order:   [layer][list][slot] u32: slots, least recently chosen first; of sets that keep recent blocks
//   chosen, missing: [layer][list][1 + choice] u32: a count, then candidates in ascending order: the layer's latest
//            choice, and what of it was not resident when it was made
//   missing_on_host: [2][list][1 + choice] u32: of the layers that are under way on the host, by layer % 2
// A list is a KV head where each chooses for itself, and one for all otherwise. How many candidates and residents there
// are is known to the control thread, which ones to operation bodies only.
struct ResidentSet {
  static constexpr const char* kName = "resident set";
  SequenceId sequence = 0;
  KvShape shape;
  std::uint32_t digests = 0;              // id of the digest index
  std::uint32_t block = 0;                // tokens
  std::uint32_t begin = 0;                // token: candidate 0 starts here
  std::uint32_t slots = 0;                // most residents of a list
  std::uint32_t choice = 0;               // blocks that a step chooses, at most `slots`
  bool recent = false;                    // the slots keep recent choices; otherwise `choice` is `slots`
  std::uint32_t window = 0;               // tokens behind the candidates that stay in the KV store
  std::uint32_t first_layer = 0;          // layers before it have no candidates
  bool per_head = false;                  // KV heads choose for themselves
  Reduce reduce = Reduce::max;            // within a KV head
  std::uint32_t lists = 1;                // 1, or one per KV head
  std::vector<std::uint32_t> candidates;  // [layer]
  DeviceBuffer pages, table, order, chosen, missing;
  HostBuffer missing_on_host;
  std::shared_ptr<HostPages> host_pages;  // of the candidates
  std::vector<Event> changed;             // [layer] the recall that last changed table and pages
  std::vector<Event> read;                // [layer] the attention that last read them

  std::uint32_t list_of(std::uint32_t kv_head) const { return per_head ? kv_head : 0; }
  std::uint32_t pages_per_block() const { return block / kPageTokens; }
  std::uint32_t residents(std::uint32_t layer) const { return std::min(candidates[layer], slots); }
  /// Whether a step leaves candidates out.
  bool chooses(std::uint32_t layer) const { return candidates[layer] > choice; }
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
  std::size_t moved_bytes() const { return shape.slot_bytes() / lists; }  // of a page, of the heads that a list is for
  std::size_t page_offset(std::uint32_t layer, std::uint32_t slot, std::uint32_t page, std::uint32_t kv_head) const {
    return ((std::size_t{layer} * slots + slot) * pages_per_block() + page) * shape.slot_bytes() +
           kv_head * shape.page_bytes();
  }
  std::size_t table_offset(std::uint32_t layer, std::uint32_t list) const {  // in u32
    return (std::size_t{layer} * lists + list) * slots;
  }
  std::size_t choice_offset(std::uint32_t layer_or_half, std::uint32_t list) const {  // in u32
    return (std::size_t{layer_or_half} * lists + list) * (1 + std::size_t{choice});
  }
  std::size_t choice_bytes() const { return lists * (1 + std::size_t{choice}) * sizeof(std::uint32_t); }  // of a layer

  std::size_t bytes(Tier tier) const {
    return tier == Tier::host ? missing_on_host.bytes()
                              : pages.bytes() + table.bytes() + order.bytes() + chosen.bytes() + missing.bytes();
  }
};

/// Memory for so many residents, none of which is there yet; what ran before keeps its own.
inline void make_resident_slots(Device& device, ResidentSet& set, std::uint32_t slots) {
  TANDEM_CHECK(slots > 0, "no slots");
  const std::uint32_t layers = set.shape.layers;
  set.slots = slots;
  if (!set.recent) set.choice = slots;
  set.pages = device.allocate_device(std::size_t{layers} * slots * set.block_bytes(), "resident blocks");
  set.table = device.allocate_device(std::size_t{layers} * set.lists * slots * sizeof(std::uint32_t), "resident table");
  if (set.recent) set.order = device.allocate_device(set.table.bytes(), "order of resident blocks");
  set.chosen = device.allocate_device(layers * set.choice_bytes(), "chosen blocks");
  set.missing = device.allocate_device(layers * set.choice_bytes(), "missing blocks");
  set.missing_on_host = device.allocate_host(2 * set.choice_bytes(), "missing blocks on the host");
}

using ResidentRef = Ref<ResidentSet>;  // blocks of a sequence that are on the device, per layer
struct SplitRef {                      // a layer's chosen blocks, with those that are not resident apart
  QueryRef query;
  std::vector<std::uint32_t> rows;         // that may miss blocks; the others have all of theirs on the device
  std::vector<ResidentRef> sets;           // by entry of `rows`
  std::vector<DeviceBuffer> missing = {};  // by entry of `rows`, a part of ResidentSet::missing; no entries: all of it
  Event ready;                             // the choices, of all rows that choose
};
/// Slots that keep what recent steps chose.
struct RecentBlocks {
  std::uint32_t slots = 1;  // at least as many as a step chooses
  /// A prompt of more blocks begins with its first ones in the slots; otherwise with none. A shorter one has all its
  /// blocks there.
  bool filled = false;
};
struct ResidentRequest {
  std::uint32_t sinks = 0;   // first tokens that never leave the device, whole blocks
  std::uint32_t block = 32;  // tokens
  std::uint32_t slots = 1;   // blocks that a step chooses, resident besides the sinks, the window and the newest block
  bool per_kv_head = false;  // each KV head chooses by its best query head; else one choice by the sum of all heads
  DigestKind digests = DigestKind::bounds;
  std::uint32_t window = 0;                 // most recent tokens that stay in the KV store, whole blocks
  std::uint32_t first_layer = 0;            // layers before it keep all KV on the device
  std::optional<Reduce> reduce = {};        // within a KV head; default: max, or mean where all heads choose together
  std::optional<RecentBlocks> recent = {};  // in place of residents that follow the choice
};

class Residency : public MechanismOf<ResidentSet> {
 public:
  using MechanismOf::MechanismOf;
  /// Moves all filled blocks of a prefilled sequence behind the sinks to host memory, builds digests on the device, and
  /// keeps those blocks resident that the prompt's last query scores best (Needs::last_queries), or that
  /// RecentBlocks::filled says. The sinks and the newest block stay in the KV store's device tier.
  ResidentRef keep(SequenceState& sequence, const ResidentRequest& request);
  /// The same after a new prompt, by its last query, for the blocks that it filled and all before, in so many slots. A
  /// set of recent blocks stays as it is; new blocks take the slots that were never used, if any.
  void renew(SequenceState& sequence, ResidentRef set, std::uint32_t slots);
  /// Room for so many slots, if there are fewer. For sets all of whose candidates are resident; these stay.
  void extend(SequenceState& sequence, ResidentRef set, std::uint32_t slots);
  /// The layer's newest block has filled up: it gets a digest and a copy in host memory, and is resident where a slot
  /// is free. From the next step on it can be chosen.
  void block_filled(SequenceState& sequence, ResidentRef set, std::uint32_t layer);
  /// Chooses each row's best blocks of the query's layer by their digests, as many as there are slots (or as a set of
  /// recent blocks chooses), and says which are not resident. `sets` by row; rows whose candidates are all resident are
  /// left out of `rows`. Waits for that layer's recalls; from here on the residents stay as they are until a recall.
  SplitRef split(const LayerContext& context, const QueryRef& query, std::span<const ResidentRef> sets);
  /// Starts attention of the split's query over its missing blocks on the host; goes into the plan of the query's
  /// layer. Nothing where no row can miss a block.
  std::optional<HostPart> host_partial(const LayerContext& context, const SplitRef& split);
  /// After a layer's attention, or before one that waits for it: brings what the choice missed to the device, in place
  /// of the first residents, by slot, that it did not name, while the step goes on. So a recall of all that is missing
  /// makes the residents the choice. Recent blocks go by their order; these look-ups and misses are counted
  /// (Cost::looked_up). `rows`: that are due. Returns when they are there; invalid if nothing is recalled.
  Event recall(const LayerContext& context, const SplitRef& split, std::span<const std::uint32_t> rows);
  const ResidentSet& get(ResidentRef set) const { return kept_.get(set.id); }
  /// The residents of a layer, for its plan. `chosen_only`: those that the latest choice names, beside a host_partial()
  /// of the others or after their recall; all of them where the choice is of all.
  Packed kv(ResidentRef set, std::uint32_t layer, bool chosen_only);

 private:
  struct Missing;  // what one row attends on the host
  const HostRoom& half(std::uint32_t layer) const { return halves_[layer % 2]; }
  void make_room();
  void take_in(SequenceState& sequence, ResidentRef ref, bool fills);
  void place_residents(const SequenceState& sequence, const ResidentSet& set, std::uint32_t layer);
  void empty_slots(const ResidentSet& set);
  /// `blocks`: candidates, each of which gets the slot of its number.
  void keep_filled(const SequenceState& sequence, const ResidentSet& set, std::uint32_t layer, Range blocks);
  const char* memory_of(const BodyContext& ctx, Tier tier) const;
  /// Gives residents' places in one list of a layer to what is missing, and moves the pages where tensors are computed.
  /// `swap`: the choice, what is missing, slots and pages, which lie in the tier's memory. Returns the bytes moved.
  std::uint64_t move_residents(BodyContext& ctx, const ResidentSet& set, std::uint32_t layer, std::uint32_t list,
                               Tier tier, LinkPieces& crossing, ResidentSwap swap) const;
  /// The same on a GPU, for swap_residents_cuda(), which lists the moves, and gather_lists_cuda(). `from`: that memory.
  Pieces listed_moves(LaunchContext& ctx, const ResidentSet& set, std::uint32_t layer, std::uint32_t list,
                      const char* from, ResidentSwap& swap) const;
  /// `selections`: of the query's layer, made on the device by it, by entry of `split.rows`. Returns the operation that
  /// says which of the chosen blocks are missing.
  Event submit_split(const SplitRef& split, std::span<const Blocks> selections);
  Missing missing_of(const SequenceState& sequence, const ResidentSet& set, std::uint32_t layer, Op& op) const;
  Event prediction_to_host(const LayerContext& context, const SplitRef& split);

  HostRoom halves_[2];  // of layers in flight, allocated when first used; layer l + 2 begins after layer l is merged
};

}  // namespace tandem
