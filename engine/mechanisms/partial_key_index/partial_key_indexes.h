// Which tokens in host memory the next layer's query will look at, from a partial index of their keys on the device,
// and their way there while this layer runs (InfiniGen, arXiv 2406.19707).
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/common/error.h"
#include "engine/device/device.h"
#include "engine/kernels/scope.h"
#include "engine/kv/host_pages.h"
#include "engine/kv/kv_store.h"
#include "engine/runtime/mechanism.h"

namespace tandem {

// A partial index of a sequence's keys on the device (InfiniGen): per KV head an orthogonal skewing that gathers what
// queries and keys have in common in the first columns, and these columns of every indexed key. Scores from it say
// which tokens to fetch; what is fetched lies here too, until the layer after the next one needs the room.
//   skew:   [layer from first_layer on][kv_head][columns][D] f32, rows are directions
//   keys:   [layer from first_layer on][kv_head][room][columns] of KvShape::type, from the sequence's first token on
//   chosen: [half][kv_head][1 + most] u32: a count, then units in ascending order
//   staged: [half][kv_head]{K [most * unit][D], V [most * unit][D]} of KvShape::type
// There are two halves, which layers take in turn; one, or none, where no more layers are indexed.
struct PartialKeyIndex {
  static constexpr const char* kName = "partial key index";
  SequenceId sequence = 0;
  KvShape shape;
  std::uint32_t columns = 0;
  std::uint32_t unit = 1;         // tokens that are fetched together
  std::uint32_t first_layer = 0;  // layers before it have no index
  std::uint32_t room = 0;         // tokens
  std::uint32_t most = 0;         // units per KV head of one fetch
  Scope scope = Scope::kv_head;   // of a layer: all KV heads have the same units, which travel together
  // [layer] tokens in host memory, from the sequence's first on, whole units; those of layers with an index are in it.
  std::vector<std::uint32_t> tokens;
  DeviceBuffer skew, keys, chosen, staged;
  std::shared_ptr<HostPages> host_pages;  // of the indexed tokens

  std::uint32_t layers() const { return shape.layers - first_layer; }  // with an index
  std::uint32_t halves() const { return std::min(2u, layers()); }
  std::uint32_t half(std::uint32_t layer) const { return (layer - first_layer) % 2; }
  std::size_t skew_offset(std::uint32_t layer, std::uint32_t kv_head) const {  // in floats
    return (std::size_t{layer - first_layer} * shape.kv_heads + kv_head) * columns * shape.head_dim;
  }
  std::size_t row_bytes() const { return columns * size_of(shape.type); }
  std::size_t keys_offset(std::uint32_t layer, std::uint32_t kv_head) const {  // in bytes
    return (std::size_t{layer - first_layer} * shape.kv_heads + kv_head) * room * row_bytes();
  }
  std::size_t chosen_offset(std::uint32_t layer, std::uint32_t kv_head) const {  // in u32
    return (std::size_t{half(layer)} * shape.kv_heads + kv_head) * (1 + std::size_t{most});
  }
  std::size_t half_bytes() const { return 2 * std::size_t{most} * unit * shape.vector_bytes(); }  // of a KV head
  std::size_t staged_offset(std::uint32_t layer, std::uint32_t kv_head) const {                   // of K, in bytes
    return (std::size_t{half(layer)} * shape.kv_heads + kv_head) * half_bytes();
  }
  std::size_t bytes(Tier tier) const {
    return tier == Tier::device ? skew.bytes() + keys.bytes() + chosen.bytes() + staged.bytes() : 0;
  }
};

inline void make_index_room(Device& device, PartialKeyIndex& index, std::uint32_t room) {
  index.room = room;
  index.keys = device.allocate_device(std::size_t{index.layers()} * index.shape.kv_heads * room * index.row_bytes(),
                                      "partial index");
}

inline void make_fetch_room(Device& device, PartialKeyIndex& index, std::uint32_t most) {
  index.most = most;
  index.chosen = device.allocate_device(
      std::size_t{index.halves()} * index.shape.kv_heads * (1 + std::size_t{most}) * sizeof(std::uint32_t),
      "speculated tokens");
  index.staged = device.allocate_device(index.halves() * index.shape.kv_heads * index.half_bytes(), "speculated kv");
}

using KeyIndexRef = Ref<PartialKeyIndex>;  // a partial index of a sequence's keys on the device
struct SpeculatedKv {                      // tokens of a layer that are on their way to the device
  std::uint32_t layer = 0;
  std::vector<std::uint32_t> rows;
  std::vector<Packed> fetched;  // by entry of `rows`
};

struct KeyIndexRequest {
  std::uint32_t columns = 1;  // of the skewed keys that the index keeps
  std::uint32_t unit = 1;     // tokens that are fetched together: 1, or whole pages
  std::uint32_t most = 1;     // units of a KV head in one fetch, of all who choose for it
  /// A KV head's query heads choose by the largest score that one of them gives, a layer's by the sum of these. Where
  /// each query head chooses, its KV head fetches what any of them chose.
  Scope scope = Scope::kv_head;
  std::uint32_t first_layer = 0;  // layers before it get no index
};

struct SpeculateRequest {
  const SequenceState* sequence = nullptr;
  KeyIndexRef index;
  std::uint32_t most = 1;  // units of one choice
  double alpha = 0;        // tokens wanted: the mean over query heads of those that score at least the best - alpha
};

class PartialKeyIndexes : public MechanismOf<PartialKeyIndex> {
 public:
  using MechanismOf::MechanismOf;
  /// Indexes a prefilled sequence: makes a skewing per KV head from the prompt's keys and its kept queries
  /// (Needs::last_queries), and keeps the first columns of every skewed key on the device. Moves all whole blocks of 32
  /// tokens of all layers to host memory.
  KeyIndexRef index_keys(SequenceState& sequence, const KeyIndexRequest& request);
  /// The same for what a new prompt added; the skewing stays.
  void renew(SequenceState& sequence, KeyIndexRef index, std::uint32_t most);
  /// After a layer: where the newest block of 32 tokens is full, it enters the layer's index, where there is one, and
  /// goes to host memory.
  void block_filled(SequenceState& sequence, KeyIndexRef index, std::uint32_t layer);
  /// Scores the indexed tokens of the query's layer and brings those that are wanted to the device, while the step goes
  /// on. Two layers' worth at a time. Every request has tokens in its index, and the indexes are alike: in columns,
  /// unit and who chooses.
  SpeculatedKv fetch(const LayerContext& context, const QueryRef& query, std::span<const SpeculateRequest> requests);

 private:
  void skew_layer(const SequenceState& sequence, const PartialKeyIndex& index, std::uint32_t layer);
  void keep_columns(const PartialKeyIndex& index, std::uint32_t layer);
  void index_more(SequenceState& sequence, KeyIndexRef ref, std::uint32_t layer, std::uint32_t end);
  void index_keys_of(const SequenceState& sequence, const PartialKeyIndex& index, std::uint32_t layer, Range added);
  void grow_index(PartialKeyIndex& index, std::uint32_t tokens);
  Event speculate(const LayerContext& context, const QueryRef& query, std::span<const SpeculateRequest> requests);
  struct SpeculatingRow;  // what one request of a speculation chooses from
  struct SpeculatedRow;   // and where its choice is fetched from
  void move_units(BodyContext& ctx, const SpeculatedRow& row, std::uint32_t layer) const;
  void launch_choices(LaunchContext& ctx, const ModelShape& shape, std::uint32_t layer, const float* queries,
                      std::span<const SpeculatingRow> rows, float* room, std::uint32_t* marks) const;
};

}  // namespace tandem
