// Blocks that are resident on the device while all KV is in host memory (ScoutAttention section 3.2): which ones a
// context begins with, what becomes of a block that fills up (residency.cc); and, inside a step, a layer's choice split
// by residency, attention over its missing blocks on the host while the device still computes the layer before, and the
// recall of what is missed too often (sections 3.3 and 3.4, layer_ahead.cc).
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "engine/mechanisms/residency/resident_set.h"
#include "engine/runtime/mechanism.h"
#include "engine/runtime/selection.h"

namespace tandem {

struct ResidentRef {  // blocks of a sequence that are on the device, per layer
  std::uint32_t id = 0;
};
struct SplitRef {  // a layer's chosen blocks, with those that are not resident apart
  QueryRef query;
  std::vector<std::uint32_t> rows;         // that may miss blocks; the others have all of theirs on the device
  std::vector<ResidentRef> sets;           // by entry of `rows`
  std::vector<DeviceBuffer> missing = {};  // by entry of `rows`, ResidentSet::missing or a part of it; empty: that
  Event ready;
};
struct ResidentRequest {
  std::uint32_t sinks = 0;   // first tokens that never leave the device, whole blocks
  std::uint32_t block = 32;  // tokens
  std::uint32_t slots = 1;   // blocks that are resident at a time, besides the sinks, the window and the newest block
  bool per_kv_head = false;  // each KV head chooses by its best query head; else one choice by the sum of all heads
  DigestKind digests = DigestKind::bounds;
  std::uint32_t window = 0;           // most recent tokens that stay in the KV store, whole blocks
  std::uint32_t first_layer = 0;      // layers before it keep all KV on the device
  std::optional<Reduce> reduce = {};  // within a KV head; default: max, or mean where all heads choose together
};

class Residency : public MechanismOf<ResidentSet> {
 public:
  using MechanismOf::MechanismOf;
  /// Moves all filled blocks of a prefilled sequence behind the sinks to host memory, builds digests on the device, and
  /// keeps those blocks resident that the prompt's last query scores best (Needs::last_queries). The sinks and the
  /// newest block stay in the KV store's device tier.
  ResidentRef keep(SequenceState& sequence, const ResidentRequest& request);
  /// The same after a new prompt, by its last query, for the blocks that it filled and all before, in so many slots.
  void renew(SequenceState& sequence, ResidentRef set, std::uint32_t slots);
  /// Room for so many slots, where there are fewer; what is resident stays.
  void extend(SequenceState& sequence, ResidentRef set, std::uint32_t slots);
  /// The layer's newest block has filled up: it gets a digest and a copy in host memory, and is resident where a slot
  /// is free. From the next step on it can be chosen.
  void block_filled(SequenceState& sequence, ResidentRef set, std::uint32_t layer);
  /// Chooses each row's best blocks of the query's layer by their digests, as many as are resident at a time, and says
  /// which are not resident. `sets` by row. Waits for that layer's recalls; from here on the residents
  /// stay as they are until a recall.
  SplitRef split(const LayerContext& context, const QueryRef& query, std::span<const ResidentRef> sets);
  /// Starts attention of the split's query over its missing blocks on the host; goes into the plan of the query's
  /// layer. Nothing where no row can miss a block.
  std::optional<HostPart> host_partial(const LayerContext& context, const SplitRef& split);
  /// After a layer's attention, or before one that waits for it: brings what the choice missed to the device, in place
  /// of residents that it did not name, while the step goes on. `rows`: that are due. Returns when they are there;
  /// invalid where nothing is recalled.
  Event recall(const LayerContext& context, const SplitRef& split, std::span<const std::uint32_t> rows);
  const ResidentSet& get(ResidentRef set) const { return kept_.get(set.id); }
  /// The residents of a layer, for its plan. `chosen_only`: those that the latest choice names; all of them where no
  /// block can be missing.
  Packed kv(ResidentRef set, std::uint32_t layer, bool chosen_only);

 private:
  struct Missing;  // what one row attends on the host
  /// Buffers of a layer in flight; layer l + 2 begins after layer l is merged.
  struct Half {
    HostBuffer query;      // [row][Hq][D], predicted
    HostBuffer part, lse;  // [row][Hq][D], [row][Hq]
    DeviceBuffer landed_part, landed_lse;
  };
  const Half& half(std::uint32_t layer) const { return halves_[layer % 2]; }
  void make_room();
  void take_in(SequenceState& sequence, ResidentRef ref);
  void place_residents(const SequenceState& sequence, const ResidentSet& set, std::uint32_t layer);
  void keep_filled(const SequenceState& sequence, const ResidentSet& set, std::uint32_t layer, std::uint32_t begin);
  void launch_placement(LaunchContext& ctx, const ResidentSet& set, std::uint32_t layer, const Choice& choice,
                        const DigestIndex& index, const float* query, const std::vector<std::uint32_t>& slots,
                        const char* pages) const;
  /// `selections`: of the query's layer, made on the device by it, by entry of `split.rows`. Returns the operation that
  /// says which of the chosen blocks are missing.
  Event submit_split(const SplitRef& split, std::span<const Blocks> selections);
  Event prediction_to_host(const LayerContext& context, const SplitRef& split);
  void launch_recall(LaunchContext& ctx, std::uint32_t layer, const std::vector<Missing>& work) const;

  Half halves_[2];  // allocated when first used
};

}  // namespace tandem
