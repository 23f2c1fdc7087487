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
/// Partial results of attention on the device: [row][Hq][D], [row][Hq].
struct PartialBuffers {
  DeviceBuffer out, lse;
};
/// Room for attention on the host: queries [row][Hq][D], results, and these on the device, for the merge.
struct HostRoom {
  HostBuffer query;
  HostBuffer part, lse;  // [row][Hq][D], [row][Hq]
  PartialBuffers landed;
};
/// Attention of some rows on the host, under way.
struct HostPart {
  std::uint32_t layer = 0;
  std::vector<std::uint32_t> rows;  // ascending
  HostRoom room;
  Event done;
};

/// One piece of attention: all query heads of a row over some tokens, where these lie.
struct AttendItem {
  std::uint32_t row = 0;
  KvSource kv;
  // Of blocks chosen per query head, or tokens with masks: each query head attends what it chose; false: the group's
  // union.
  bool own_only = true;
  // On the device: the weights go there. Of Ranges that are the row's only item, adjacent tokens that reach to the
  // row's end; of packed tokens that do not lie in pages, beside nothing but the step's own token, whose weights go
  // along.
  std::optional<WeightsTo> weights = {};
};

class AttentionFinisher;

struct AttendPlan {
  // Every row at least once; no token twice; the step's own token once, by position; of a digest index one choice. On
  // the device rows are attended together, so there a row has at most one item of each kind but Ranges, and the rows'
  // items of a kind are alike: in scope and own_only, in the store or copied, in runs of pages or not; all choose
  // blocks of the store, or all choose single tokens. On the host a row may have several of each. Sums go in the order
  // of positions where these are known, Ranges first elsewhere.
  std::vector<AttendItem> items;
  std::optional<HostPart> ready = {};  // of this layer, begun earlier; then no item is on the host
  /// Finishes the attention; then no item is on the host and no weights are left.
  AttentionFinisher* finisher = nullptr;
  std::array<std::vector<AttendItem>, 2> apart = {};  // on the device, attended apart from `items`, for the finisher
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

/// LogicError naming the rule that `plan` breaks. Not checked: sources whose tokens are chosen later (KvTokens without
/// positions), and what a finisher attends; neither may be in other items too.
void check_plan(const LayerContext& context, const AttendPlan& plan);

}  // namespace tandem
