// What a method's hooks see and return: sequences, handles of what the engine keeps for them, and plans of attention
// made of these. engine/runtime/ops.h makes the handles.
#pragma once

#include <any>
#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "engine/device/types.h"
#include "engine/kv/kv_source.h"
#include "engine/runtime/weights.h"

namespace tandem {

struct ModelShape {
  std::uint32_t layers = 0, hidden = 0, q_heads = 0, kv_heads = 0, head_dim = 0;
  std::uint32_t group() const { return q_heads / kv_heads; }  // query heads per KV head
};

/// One sequence of the running batch, as a method sees it.
struct SequenceState {
  SequenceId id = 0;                // in the KV store
  std::uint32_t request = 0;        // number in the batch that was asked for; a row may change, this does not
  std::uint32_t row = 0;            // row of this step's batch
  std::uint32_t prefix_tokens = 0;  // prefilled before the first step
  std::uint32_t tokens = 0;         // in the KV store; inside a step this includes the step's own token
  std::uint32_t max_tokens = 0;     // that it can have in the KV store when its decode ends
  std::any method;                  // the method's own state of this sequence
  std::size_t device_bytes = 0;     // on the device, of what it has there beside what Ops made: counted in the peaks
};

/// Room on the device for KV that Ops::fetch brings there.
struct StagingRef {
  std::uint32_t id = 0;
};

struct QueryRef {  // queries of all rows on the device: a layer's own, or made ahead by Ops::predict_query
  std::uint32_t layer = 0;
  bool predicted = false;
  Event ready;
};
struct ResidentRef {  // blocks of a sequence that are on the device, per layer; made by Ops::keep_resident
  std::uint32_t id = 0;
};
struct SplitRef {  // a layer's chosen blocks, with those that are not resident apart; made by Ops::split_by_residency
  QueryRef query;
  std::vector<std::uint32_t> rows;  // that may miss blocks; the others have all of theirs on the device
  std::vector<ResidentRef> sets;    // by entry of `rows`
  Event ready;
};
struct PartialRef {  // attention on the host that is under way; made by Ops::host_partial
  std::uint32_t layer = 0;
  std::vector<std::uint32_t> rows;
  Event done;
};

/// One piece of attention: the query heads of KV heads [kv_heads) of a row over some tokens, where these lie.
struct AttendItem {
  std::uint32_t row = 0;
  Range kv_heads{};  // default: all
  KvSource kv;
  // Of blocks chosen per query head, or tokens with masks: each query head attends what it chose; false: the group's
  // union.
  bool own_only = true;
  // On the device, of all KV heads: the weights go there. Of Ranges that are the row's only item, adjacent tokens that
  // reach to the row's end; of packed tokens beside nothing but the step's own token, whose weights go along.
  std::optional<WeightsTo> weights = {};
};

/// A row of a layer as a HeadEstimate sees it: its queries, and attention over what lies on the device in three parts.
/// Where only shapes are simulated the pointers are null.
struct HeadView {
  struct Part {
    const float *out = nullptr, *lse = nullptr;  // [Hq][D], [Hq]; of no tokens 0 and -infinity
  };
  std::uint32_t row = 0, layer = 0;
  std::uint32_t tokens = 0;        // the step's own included
  const float* query = nullptr;    // [Hq][D]
  std::array<Part, 2> apart = {};  // PulledTasks::apart
  Part rest = {};                  // the plan's items
};

/// What a method estimates of every query head on the device, once it has attended to what lies there.
struct HeadEstimate {
  std::uint32_t width = 1;  // values per head
  Cost cost;                // of all rows of a layer
  std::function<void(const HeadView&, float* out /*[Hq][width]*/)> estimate;
  /// Its twin on a GPU, of all rows of the batch at once; called when it is submitted. What the views name is device
  /// memory, and so is `out`; rows lie one after another in both. Empty: estimates are refused there.
  std::function<void(LaunchContext&, std::span<const HeadView>, float* out /*[row][Hq][width]*/)> launch;
};

/// Attention of one KV head over blocks in host memory: they are scored by the layer's true query, and each query head
/// attends to its own best ones, or, without own_only, to all that the group's heads have chosen.
struct PullTask {
  std::uint32_t row = 0, kv_head = 0;
  DigestRef digests;                  // in host memory
  std::vector<std::uint32_t> blocks;  // that each query head of the group attends; 0: none
  bool host = true, device = true;    // who may take it
  std::uint64_t work = 0;             // what it comes to, in units of PulledTasks::pace
  bool own_only = true;
};

/// Tasks that the host's workers and the device pull from one queue once the device's own attention is done. The device
/// reads digests and chosen blocks over the link. Results do not depend on who took a task.
struct PulledTasks {
  std::array<std::vector<AttendItem>, 2> apart;  // on the device, attended apart from the plan's items, for `heads`
  HeadEstimate heads;
  /// Policy, on the control thread: from estimates [row][Hq][width] to tasks in the order in which they are taken.
  std::function<std::vector<PullTask>(std::span<const float> estimates)> choose;
  Nanos choose_ns = 0;  // declared control time of that
  /// The host's workers: each takes tasks for itself, with its part of the threads; at most Device::kMaxWorkers. 0: one
  /// for every eight tasks, but two or more, and no more than the threads hold a group's query heads.
  std::uint32_t workers = 0;
  /// By Side, time of a unit of work, as far as is known: a side leaves a task that it would end later than the other
  /// one would end all that is left. 0: it takes what comes.
  std::array<double, 2> pace = {0, 0};
};

struct AttendPlan {
  // Every row at least once; no token twice for a head; the step's own token once, by position; of a digest index one
  // choice. On the device rows are attended together, so there a row has at most one item of each kind but Ranges, for
  // all KV heads, and the rows' items of a kind are alike: in scope and own_only, in the store or copied, in runs of
  // pages or not; all choose blocks of the store, or all choose single tokens. On the host a row may have several of
  // each, for some of the KV heads. Sums go in the order of positions where these are known, Ranges first elsewhere.
  std::vector<AttendItem> items;
  std::optional<PartialRef> ready = {};   // of this layer, begun earlier; then no item is on the host
  std::optional<PulledTasks> tasks = {};  // then no item is on the host and no weights are averaged
};

struct LayerContext {
  std::uint32_t step = 0, layer = 0;
  std::span<SequenceState* const> batch;  // by row
  ModelShape shape;
};

struct StepContext {
  std::uint32_t step = 0;
  std::span<SequenceState* const> batch;
  ModelShape shape;
};

}  // namespace tandem
