// The method interface. A method is policy: hooks are called per layer for the whole ragged batch and return plans made
// of handles; the engine executes them, so that every method runs on the same kernels. No hook reads tensor data and no
// method owns a kernel, a stream or a thread. docs/add_a_method.md is the recipe.
#pragma once

#include <any>
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "engine/device/types.h"
#include "engine/kv/kv_store.h"

namespace tandem {

struct ModelShape {
  std::uint32_t layers = 0, hidden = 0, q_heads = 0, kv_heads = 0, head_dim = 0;
  std::uint32_t group() const { return q_heads / kv_heads; }  // query heads per KV head
};

/// One sequence of the running batch, as a method sees it.
struct SequenceState {
  SequenceId id = 0;                // in the KV store
  std::uint32_t row = 0;            // row of this step's batch
  std::uint32_t prefix_tokens = 0;  // prefilled before the first step
  std::uint32_t tokens = 0;         // in the KV store; inside a step this includes the step's own token
  std::any method;                  // the method's own state of this sequence
};

enum class Side : std::uint8_t { device, host };

/// Tokens fixed by position: sorted, disjoint ranges.
struct StaticTokens {
  std::vector<Range> ranges;
  std::uint32_t count() const;
};

/// Handles. `ready` is the event after which the data exists on `side`.
struct DigestRef {
  std::uint32_t id = 0;
  Side side = Side::host;
};
struct SelectionRef {  // blocks chosen per query head, made by Ops::score_topk
  DigestRef digests;
  std::uint32_t blocks_per_head = 0;
  Event ready;
};

struct PageSet {
  std::variant<StaticTokens, SelectionRef> source;
};

/// One piece of attention: the query heads of KV heads [kv_heads) of a row over a set of tokens, on one side.
struct AttendItem {
  std::uint32_t row = 0;
  Range kv_heads{};  // default: all
  PageSet pages;
  Side side = Side::device;
  bool own_blocks_only = true;  // of a selection: each query head attends its own blocks; false: the group's union
};

struct AttendPlan {
  std::vector<AttendItem> items;  // every row at least once; no token twice for a head
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

struct ScoreRequest {
  const SequenceState* sequence = nullptr;
  DigestRef digests;
  std::uint32_t blocks_per_head = 0;  // capped by the number of blocks
};

/// What a method can ask of the engine. Everything returns at once; the work runs on the device's lanes.
class Ops {
 public:
  virtual ~Ops() = default;
  /// Copies whole blocks of all layers to host memory and drops the device's copy once that is done.
  /// `tokens` must be block aligned and in the past.
  virtual void move_to_host(SequenceState& sequence, Range tokens) = 0;
  /// Digests (per channel min and max of the keys) of every layer over host-resident `tokens`, `block` tokens each,
  /// counted from tokens.begin; a short last block is digested over what it has.
  virtual DigestRef build_digests(SequenceState& sequence, Range tokens, std::uint32_t block) = 0;
  /// Gives up device pages that lie wholly inside `tokens`, for good.
  virtual void drop(SequenceState& sequence, Range tokens) = 0;
  /// Scores all blocks against this layer's true query (Quest's upper bound) and takes the best per query head; ties go
  /// to the lower index. Runs where the digests are.
  virtual SelectionRef score_topk(const LayerContext& context, const ScoreRequest& request) = 0;
};

struct Needs {
  bool lossless = false;           // with its options as given, the output equals full attention
  bool host_tier = false;          // keeps KV in host memory
  std::uint32_t last_queries = 0;  // queries of the prompt's end a snapshot must keep
  bool column_sums = false;        // attention column sums of the prefill
};

class Method {
 public:
  virtual ~Method() = default;
  /// Registry name with all options, as `tandem compare --methods` takes it: "hybrid-fixed:block=16,budget=0.05".
  virtual std::string spelled_out() const = 0;
  virtual Needs needs(const ModelShape&) const = 0;
  virtual void context_ready(SequenceState&, Ops&) {}             // after prefill
  virtual void before_layer(const LayerContext&, Ops&) {}         // the layer's input exists
  virtual AttendPlan plan_attend(const LayerContext&, Ops&) = 0;  // the true query exists
  virtual void after_layer(const LayerContext&, Ops&) {}
  virtual void after_step(const StepContext&, Ops&) {}
};

}  // namespace tandem
