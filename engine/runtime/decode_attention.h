// Executes a method's AttendPlan for one layer of a decode step: device items in one operation on the compute lane
// (device_attention.cc), host items in one operation on the host workers, whose parts all threads share whatever
// sequence and head they belong to (host_attention.cc), partial results over the link, one merge on the device. Also
// what comes before: the query on the host, and block selection on either side (selection.cc).
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "engine/device/device.h"
#include "engine/kernels/thread_pool.h"
#include "engine/kv/kv_store.h"
#include "engine/kv/sequence_stores.h"
#include "engine/runtime/batch_draws.h"
#include "engine/runtime/finisher.h"
#include "engine/runtime/forward.h"
#include "engine/runtime/host_parts.h"
#include "engine/runtime/launched_attention.h"
#include "engine/runtime/ops.h"
#include "engine/runtime/page_tables.h"
#include "engine/runtime/partials.h"

namespace tandem {

class DecodeAttention {
 public:
  DecodeAttention(Forward& forward, Device& device, ThreadPool& pool, KvStore& kv, SequenceStores& stores,
                  BatchDraws* draws);

  /// Starts a layer: `query_ready` is the operation that wrote q of all rows.
  void begin_layer(Event query_ready);
  /// The query in host memory; the copy is submitted at the first call of a layer.
  Event query_on_host(const LayerContext& context);
  /// What bodies on the host attended.
  const HostCounters& counters() const { return counters_; }
  PageTables& page_tables() { return page_tables_; }
  /// The layer's true queries, by the same kind of handle as predicted ones.
  QueryRef layer_query(const LayerContext& context) const { return {context.layer, false, query_ready_}; }
  /// Ops::predict_query.
  QueryRef predict_query(const LayerContext& context, std::uint32_t layer, std::uint32_t norm_of);
  /// [row][Hq][D] of the predicted or the running layer's own queries.
  const DeviceBuffer& query_values(const QueryRef& query) const {
    return query.predicted ? predicted_[query.layer % 2] : forward_.q();
  }
  std::vector<Blocks> score_topk(const LayerContext& context, std::span<const ScoreRequest> requests);
  /// On the device, by other queries [row][Hq][D] than the layer's own, for the digests of context.layer.
  std::vector<Blocks> select_on_device(const LayerContext& context, std::span<const ScoreRequest> requests,
                                       const DeviceBuffer& query, Event query_ready);
  /// Submits the plan; afterwards the forward pass's attention buffer holds all rows. Splits the open launch segment
  /// where the device waits for the host.
  void run(const LayerContext& context, const AttendPlan& plan);

  struct Attended {
    std::uint64_t tokens[2] = {0, 0};        // by Side, summed over layers and KV heads
    std::uint64_t packed_bytes = 0;          // of the token sets that were attended, all layers
    std::vector<std::uint64_t> host_tokens;  // by layer, summed over KV heads
    std::uint64_t tasks[2] = {0, 0};         // pulled, by Side, all layers
  };
  /// Tokens attended since the last call, by row. Call when the step is done.
  std::vector<Attended> take_attended(std::uint32_t rows);

 private:
  struct PageRun {  // part of one page
    std::uint32_t slot = 0;
    std::uint32_t first = 0, tokens = 0;
    std::uint32_t head_mask = 0;
  };
  struct Emission {  // scores of the device's items, on their way to a mechanism
    WeightsTaker* taker = nullptr;
    bool packed = false;  // of packed tokens and the step's own, else of tokens at their positions
    std::vector<EmittedWeights> rows;
    bool empty() const { return rows.empty(); }
  };
  struct HostRow;       // what one row attends on the host
  struct DeviceWork;    // what all rows attend on the device
  struct DeviceRow;     // of it: pages of the store
  struct DeviceBlocks;  // of it: blocks of a selection
  struct DeviceTokens;  // of it: single tokens that were chosen
  struct DevicePacked;  // of it: tokens in memory of their own
  struct Selecting;     // a selection to be made

  void append_page_runs(const SequenceState& sequence, std::uint32_t layer, const Ranges& tokens,
                        std::vector<PageRun>& runs) const;
  Selecting selecting(const LayerContext& context, const ScoreRequest& request) const;
  static Blocks chosen_blocks(std::uint32_t layer, const ScoreRequest& request, const Selecting& selecting,
                              Event ready);
  Blocks select_on_host(const LayerContext& context, const ScoreRequest& request);
  void score_and_choose(BodyContext& ctx, const ModelShape& shape, const Selecting& selecting,
                        const float* query /*[row][Hq][D]*/);
  Emission plan_emission(const LayerContext& context, std::span<const AttendItem* const> items);
  void submit_device(const LayerContext& context, std::span<const AttendItem* const> items, const Emission& emitted,
                     const DeviceBuffer& out, const DeviceBuffer& lse);
  // Dispatched by the kind of source: into `work`, with what `op` must declare and wait for.
  void gather(const LayerContext& context, const AttendItem& item, const Ranges& ranges, Op& op, DeviceWork& work);
  void gather(const LayerContext& context, const AttendItem& item, const Blocks& chosen, Op& op,
              DeviceWork& work) const;
  void gather(const LayerContext& context, const AttendItem& item, const Tokens& tokens, Op& op, DeviceWork& work);
  void gather(const LayerContext& context, const AttendItem& item, const Packed& packed, Op& op, DeviceWork& work);
  std::vector<HeadSpans> device_spans(BodyContext& ctx, const ModelShape& shape, const DeviceWork& work);
  void settle_device(BodyContext& ctx, const ModelShape& shape, const DeviceWork& work, std::vector<HeadSpans>* spans);
  void resolve_blocks(BodyContext& ctx, const ModelShape& shape, const DeviceBlocks& work, std::vector<HeadSpans>* out,
                      std::vector<Access>& access, Cost& cost) const;
  class DeviceLaunch;
  /// The body's twin on a GPU (device_launch.cc).
  void launch_device(LaunchContext& ctx, const ModelShape& shape, std::uint32_t layer, const DeviceWork& work,
                     const Emission& emitted, const DeviceBuffer& out, const DeviceBuffer& lse);
  /// Adds what attention over so many tokens of a KV head costs on the device; returns `tokens`.
  std::uint64_t attention_cost(std::uint64_t tokens, Cost& cost) const;
  void take_emission(const LayerContext& context, const Emission& emission);
  HostRow gather_host(const LayerContext& context, std::uint32_t row, std::span<const AttendItem* const> items,
                      Op& op) const;
  Event submit_host(const LayerContext& context, std::span<const std::vector<const AttendItem*>> items);
  /// What the rows attend, now that selections and token sets are known: the accesses and the cost that this comes to,
  /// and the spans where `out` asks for them (a prediction needs sizes only).
  void resolve(BodyContext& ctx, const ModelShape& shape, std::uint32_t layer, const std::vector<HostRow>& rows,
               std::vector<Access>& access, Cost& cost, std::vector<HeadSpans>* out) const;
  void run_finisher(const LayerContext& context, const AttendPlan& plan, std::span<const AttendItem* const> on_device);

  Forward& forward_;
  Device& device_;
  ThreadPool& pool_;
  KvStore& kv_;
  SequenceStores& stores_;
  BatchDraws* draws_;  // where only shapes are simulated
  LaneId compute_, d2h_, workers_;
  Event query_ready_, query_on_host_;
  PartialBuffers own_;  // the device's part
  HostRoom host_;
  DeviceBuffer scores_;             // of the layer's items whose weights are averaged
  std::vector<Attended> attended_;  // device side, what is known when plans are made
  HostBuffer device_attended_;      // [row] tokens u64: what was chosen; device bodies write it over the link
  HostCounters counters_;           // of the host bodies
  PageTables page_tables_;          // of the compute lane, where the device launches
  std::map<BufferId, LaunchedAttention>
      launched_fixed_;  // by where the result goes: plans last while lists are as long
  LaunchedAttention launched_chosen_, launched_copied_, launched_pages_, launched_packed_;  // where the device launches
  DeviceBuffer predicted_[2];  // queries that a layer before predicts, by layer % 2; allocated when first used
  AttentionFinisher* finisher_ = nullptr;  // of the latest plan that named one
};

}  // namespace tandem
