// What a method can ask of the engine besides attention, with the requests' parts. All of it is in handles and numbers;
// no call reads tensor data.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <typeindex>
#include <variant>
#include <vector>

#include "engine/device/types.h"
#include "engine/kernels/digest.h"  // DigestKind
#include "engine/kernels/topk.h"    // Reduce
#include "engine/runtime/plan.h"

namespace tandem {

struct CopyRequest {
  const SequenceState* sequence = nullptr;
  Range tokens;
};

struct DigestRequest {
  Range tokens;             // block 0 starts at tokens.begin, a page's first token
  std::uint32_t block = 0;  // tokens
  /// Side of the digests, where blocks are scored. Those on the host need the tokens' KV in host memory. Those on the
  /// device take it from either side, over the link from host memory.
  Side side = Side::host;
  /// Takes more blocks later (extend_digests), up to the sequence's max_tokens: then only whole blocks have a digest.
  /// Otherwise a short last block is digested over what it has.
  bool grows = false;
  std::uint32_t first_layer = 0;  // layers before it get no digests
  DigestKind kind = DigestKind::bounds;
  /// Bounds only: digests of smaller blocks, from which these are made instead of from the keys, now and later. Tokens,
  /// side and growth are the same, and a block here is a multiple of one there.
  std::optional<DigestRef> finer = {};
};

struct DigestExtension {
  const SequenceState* sequence = nullptr;
  DigestRef digests;
  std::uint32_t end = 0;  // all whole blocks before this token get their digest
};

struct ScoreRequest {
  const SequenceState* sequence = nullptr;
  DigestRef digests;
  std::uint32_t blocks = 0;        // that a list gets, capped by the number of blocks
  std::uint32_t always_first = 0;  // the first so many blocks are among them whatever their score
  Scope scope = Scope::query_head;
  Reduce reduce = Reduce::max;  // within a KV head; a layer's score is the sum over its KV heads
};

struct FetchRequest {
  const SequenceState* sequence = nullptr;
  StagingRef staging;
  /// In host memory: whole pages, or the blocks of a selection that was made on the device.
  std::variant<Ranges, Blocks> tokens;
};

class Companion;
class Mechanism;
struct EngineParts;

/// What a method can ask of the engine. Everything returns at once; the work runs on the device's lanes.
class Ops {
 public:
  explicit Ops(EngineParts& parts) : parts_(parts) {}
  /// The run's mechanism M (engine/mechanisms), made when it is first asked for.
  template <class M>
  M& use() {
    std::unique_ptr<Mechanism>& held = mechanism(typeid(M));
    if (held == nullptr) held = std::make_unique<M>(parts_);
    return static_cast<M&>(*held);
  }
  const ModelShape& shape() const;
  /// Copies whole pages of all layers to host memory and drops them on the device once that is done. `tokens` begin and
  /// end at page boundaries and are not in host memory yet. In a step, not before the last layer's after_layer.
  void move_to_host(SequenceState& sequence, Range tokens);
  /// The same for one layer, in its after_layer or later. `along`: other data to move in the same operation.
  void move_to_host(SequenceState& sequence, Range tokens, std::uint32_t layer, Companion* along = nullptr);
  /// Copies one layer of any tokens to host memory; the device keeps its own until they are dropped.
  void copy_to_host(std::uint32_t layer, std::span<const CopyRequest> requests);
  /// Digests (DigestRequest::kind) of every layer's blocks.
  DigestRef build_digests(SequenceState& sequence, const DigestRequest& request);
  /// Makes digests of one layer's blocks that have filled up, for any number of sequences; finer ones come before those
  /// that are made from them. On the device, all that a call makes from keys have one block size. Call it after the
  /// layer's last score of the step: the plan itself attends the newest block.
  void extend_digests(std::uint32_t layer, std::span<const DigestExtension> extensions);
  /// Evicts the device pages of all layers that lie wholly inside `tokens`; copies in host memory stay. In a step, not
  /// before the last layer's after_layer.
  void drop(SequenceState& sequence, Range tokens);
  /// Scores all blocks against this layer's true query by their digests and takes the best; ties go to the lower
  /// index. Runs where the digests are: on the host one by one, on the device for all requests at once, which then have
  /// one scope and one reduction.
  std::vector<Blocks> score_topk(const LayerContext& context, std::span<const ScoreRequest> requests);
  /// Room on the device for the KV of `tokens` tokens per KV head, `parts` times. `renew_staging` changes the tokens
  /// and forgets what was fetched: not between a fetch and its attention.
  StagingRef make_staging(SequenceState& sequence, std::uint32_t tokens, std::uint32_t parts);
  void renew_staging(const SequenceState& sequence, StagingRef staging, std::uint32_t tokens);
  /// Brings KV of one layer from host memory into the staging's next part, for one attention of the same step; KV that
  /// comes back and stays is Residency's. It waits for the part's last reader. Whole pages are copied; the device
  /// itself reads chosen blocks, whose selections have one scope. Pieces are counted as engine/kv/link_pieces.h says.
  std::vector<KvSource> fetch(std::uint32_t layer, std::span<const FetchRequest> requests);

  /// Queries of `layer` for all rows from the input of the layer that runs, under the input norm of layer `norm_of`, at
  /// the step's position (ScoutAttention, algorithm 1, line 2). In before_layer and plan_attend.
  QueryRef predict_query(const LayerContext& context, std::uint32_t layer, std::uint32_t norm_of);
  /// The true queries of the layer that runs; from plan_attend on.
  QueryRef layer_query(const LayerContext& context);

 private:
  std::unique_ptr<Mechanism>& mechanism(std::type_index type);

  EngineParts& parts_;
};

}  // namespace tandem
