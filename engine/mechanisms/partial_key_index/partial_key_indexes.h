// Which tokens in host memory the next layer's query will look at, from a partial index of their keys on the device,
// and their way there while this layer runs (InfiniGen, arXiv 2406.19707).
#pragma once

#include <span>
#include <vector>

#include "engine/mechanisms/partial_key_index/partial_key_index.h"
#include "engine/runtime/mechanism.h"

namespace tandem {

struct KeyIndexRef {  // a partial index of a sequence's keys on the device
  std::uint32_t id = 0;
};
struct SpeculatedKv {  // tokens of a layer that are on their way to the device
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
  void move_units(BodyContext& ctx, const PartialKeyIndex& index, std::uint32_t layer,
                  const std::vector<std::uint32_t>& pages) const;
  struct SpeculatingRow;  // what one request of a speculation chooses from
  struct SpeculatedRow;   // and where its choice is fetched from
  // The twins on a GPU (launch.cc).
  void launch_speculation(LaunchContext& ctx, const ModelShape& shape, std::uint32_t layer, const float* queries,
                          std::span<const SpeculatingRow> rows) const;
  void launch_choices(LaunchContext& ctx, const ModelShape& shape, std::uint32_t layer, const float* queries,
                      std::span<const SpeculatingRow> rows, float* room, std::uint32_t* marks) const;
  void launch_units(LaunchContext& ctx, std::span<const SpeculatedRow> rows, std::uint32_t layer) const;
};

}  // namespace tandem
