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
  std::uint32_t tokens = 0;         // positions so far, evicted ones too; inside a step with the step's own token
  std::uint32_t max_tokens = 0;     // `tokens` when its decode ends, at most
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
  // For blocks chosen per query head, and tokens with masks. True: a query head attends its own choice; false: all that
  // its group chose.
  bool own_only = true;
  // The mechanism that gets the item's weights. On the device only: one range up to the row's end, the row's only
  // device item; or packed tokens that are not in pages, beside the step's own token only, whose weights go along.
  std::optional<WeightsTo> weights = {};
};

class AttentionFinisher;

struct AttendPlan {
  // Every row attends its step's own token, by position; no token twice; of a digest index at most one choice.
  // Device: all rows at once. So a row has at most one item of each kind except Ranges, and the items of a kind agree
  // between rows: scope, own_only, in the store or copied, in pages or not. Blocks of the store and single tokens do
  // not mix. Host: several of each kind. Residents of a choice (Packed::named) need `ready` for their row, or one of
  // their own. Sums go in the order of positions where these are known; otherwise Ranges come first.
  std::vector<AttendItem> items;
  std::optional<HostPart> ready = {};  // of this layer, begun earlier; then no item is on the host
  /// Finishes the attention; then no item is on the host and no weights are left.
  AttentionFinisher* finisher = nullptr;
  std::array<std::vector<AttendItem>, 2> apart = {};  // on the device, attended apart from `items`, for the finisher
};

struct LayerContext {
  std::uint32_t step = 0, layer = 0;      // each decode counts its steps from 0
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
