// Drift of queries since the previous step (FreeKV, arXiv 2505.13109). Splits the missing blocks of a choice: heads
// whose queries have moved far need theirs now, the others get theirs while the step goes on.
//   queries:    [layer][Hq][D] f32, of the step before
//   now, later: [layer][KV head][1 + slots] u32: a count, then candidates in ascending order
#pragma once

#include <span>
#include <vector>

#include "engine/mechanisms/residency/residency.h"
#include "engine/runtime/mechanism.h"

namespace tandem {

struct PreviousQueries {
  static constexpr const char* kName = "previous queries";
  SequenceId sequence = 0;
  std::uint32_t slots = 0;  // that `now` and `later` have room for
  DeviceBuffer queries, now, later;
  std::vector<bool> known;  // [layer] `queries` holds a step's

  std::size_t bytes(Tier tier) const {
    return tier == Tier::device ? queries.bytes() + now.bytes() + later.bytes() : 0;
  }
};

using DriftRef = Ref<PreviousQueries>;

/// A split's missing blocks: of urgent heads, and of the others.
struct PartedSplit {
  SplitRef now, later;
};

class QueryDrift : public MechanismOf<PreviousQueries> {
 public:
  using MechanismOf::MechanismOf;
  /// No queries yet. For sets in which each KV head chooses, with at most `slots` slots.
  DriftRef open(SequenceState& sequence, std::uint32_t slots);
  /// Forgets the queries, between decodes.
  void renew(SequenceState& sequence, DriftRef drift, std::uint32_t slots);
  /// In plan_attend. `split` is by this layer's true query, `drifts` by row. A KV head is urgent in a sequence's first
  /// step, and where its queries' cosine to those of the step before, averaged over the group, is below `least`.
  PartedSplit part(const LayerContext& context, const SplitRef& split, std::span<const DriftRef> drifts, float least);

 private:
  PreviousQueries room_for(SequenceId sequence, std::uint32_t slots) const;
};

}  // namespace tandem
