// Attention that begins on the host one layer ahead (ScoutAttention section 3.3): a query predicted from the layer
// before; the part of its choice of blocks that is not resident, attended on the host while the device still computes
// the layer before; and the recall of what is missed too often (section 3.4).
// The data of a layer lives in one of two halves by layer % 2: layer l + 2 begins after layer l is merged.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/device/device.h"
#include "engine/kernels/thread_pool.h"
#include "engine/kv/kv_store.h"
#include "engine/kv/sequence_stores.h"
#include "engine/runtime/forward.h"
#include "engine/runtime/host_parts.h"
#include "engine/runtime/plan.h"

namespace tandem {

class LayerAhead {
 public:
  /// `counters` are the decode attention's and outlive this.
  LayerAhead(Forward& forward, Device& device, ThreadPool& pool, KvStore& kv, SequenceStores& stores,
             const HostCounters& counters);

  QueryRef predict(const LayerContext& context, std::uint32_t layer, std::uint32_t norm_of);
  /// [row][Hq][D] of the predicted or the layer's own queries.
  const DeviceBuffer& values(const QueryRef& query) const;
  /// `selections`: of the query's layer, made on the device by it, by entry of `split.rows`. Returns the operation that
  /// says which of the chosen blocks are missing.
  Event split(const SplitRef& split, std::span<const Blocks> selections);
  std::optional<PartialRef> start_partial(const LayerContext& context, const SplitRef& split);
  /// Returns the operation that brings the blocks; invalid where no row is in the split.
  Event recall(const LayerContext& context, const SplitRef& split, std::span<const std::uint32_t> rows);

  struct Half {
    DeviceBuffer query;                    // [row][Hq][D], predicted
    HostBuffer host_query;                 // [row][Hq][D]
    HostBuffer host_part, host_lse;        // [row][Hq][D], [row][Hq]
    DeviceBuffer landed_part, landed_lse;  // the same on the device
  };
  const Half& half(std::uint32_t layer) const { return halves_[layer % 2]; }

 private:
  struct Missing;  // what one row attends on the host
  void launch_recall(LaunchContext& ctx, std::uint32_t layer, const std::vector<Missing>& work) const;
  void make_room();
  Event prediction_to_host(const LayerContext& context, const SplitRef& split);

  Forward& forward_;
  Device& device_;
  ThreadPool& pool_;
  KvStore& kv_;
  SequenceStores& stores_;
  const HostCounters& counters_;
  Half halves_[2];  // allocated when first used
};

}  // namespace tandem
