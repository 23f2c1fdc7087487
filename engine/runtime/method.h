// The method interface. A method is policy: hooks are called per layer for the whole ragged batch and return plans made
// of handles (plan.h); what must be made or moved for them they ask for (ops.h). The engine executes both, so that
// every method runs on the same kernels. No hook reads tensor data and no method owns a kernel, a stream or a thread.
// docs/add_a_method.md is the recipe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine/runtime/layer_keeper.h"
#include "engine/runtime/ops.h"
#include "engine/runtime/plan.h"

namespace tandem {

/// What a method wants from the attention of a new prompt, which is exact over all KV that the sequence still has.
struct AppendRequest {
  /// Get the mean weights that the tokens on the host have under all of the new prompt's queries, in a softmax over
  /// these tokens.
  std::optional<HostWeights> weights = {};
  /// Attended instead of the tokens before the new prompt; takes in the weights of its queries.
  OlderTokens* older = nullptr;
  /// Brings KV that is in host memory to the device for the prompt's attention, which otherwise reads it there.
  LayerKeeper* keeper = nullptr;
};

struct Needs {
  bool lossless = false;  // with its options as given, the output equals full attention
  /// Queries of the prompt's end that a snapshot must keep: at most EngineOptions::keep_queries.
  std::uint32_t last_queries = 0;
  bool column_sums = false;   // the prompt's attention mass by token and KV head
  bool eigenvectors = false;  // of the prompt's keys, by OpenBLAS where a CPU computes
  bool host_prompts = false;  // takes prompts whose KV is in host memory because it does not fit the device
  /// The method evicts tokens one by one; AppendRequest::older stands for those that are left. On a GPU such a sequence
  /// takes no further prompt.
  bool single_tokens = false;
};

class Method {
 public:
  virtual ~Method() = default;
  /// Registry name with all options, as `tandem compare --methods` takes it: "hybrid-fixed:block=16,budget=0.05".
  virtual std::string spelled_out() const = 0;
  /// Hash over the files that its options name and spelled_out() cannot say; 0: none. With other files it is another
  /// method.
  virtual std::uint64_t content() const { return 0; }
  /// Model::weights_hash of the model that these files were trained for; empty: none was, or they do not say.
  virtual std::string trained_for() const { return {}; }
  virtual Needs needs(const ModelShape&) const = 0;
  virtual void context_ready(SequenceState&, Ops&) {}             // after prefill
  virtual void before_layer(const LayerContext&, Ops&) {}         // the layer's input exists
  virtual AttendPlan plan_attend(const LayerContext&, Ops&) = 0;  // the true query exists
  virtual void after_layer(const LayerContext&, Ops&) {}
  /// Of the sequences that go on: one that has its last token is not in the batch any more.
  virtual void after_step(const StepContext&, Ops&) {}
  // A new prompt in a running session: before and after its `tokens` are computed. state.tokens counts them from
  // appended() on. Where computing them fails, the session is over (DecodeSession::append).
  virtual AppendRequest before_append(SequenceState&, Range, Ops&) { return {}; }
  virtual void appended(SequenceState&, Range, Ops&) {}
  /// A kept sequence goes on without a new prompt, and max_tokens has grown: before the decode's first step. For
  /// methods that hold no more room than a context can fill.
  virtual void goes_on(SequenceState&, Ops&) {}
};

}  // namespace tandem
