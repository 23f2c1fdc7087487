// Tokens that survive on the device by the attention mass that they have gathered, per layer and KV head (H2O, Zhang et
// al. 2023, section 4; TOVA's rule with `latest`): the choice when a prompt is there, and in every step the update
// after the attention.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "engine/mechanisms/survivors/kernels/heavy.h"
#include "engine/mechanisms/survivors/survivor_set.h"
#include "engine/runtime/mechanism.h"

namespace tandem {

struct SurvivorsRef {  // a sequence's survivors
  std::uint32_t id = 0;
};

struct SurvivorsRequest {
  std::uint32_t heavy = 0;   // tokens that stay for their mass
  std::uint32_t window = 1;  // most recent tokens, which stay anyway
  /// By the latest query's weights alone, summed over all heads of the layer, which hold the same tokens (TOVA); the
  /// prompt's are its last kept query's (Needs::last_queries). Otherwise by all queries' (H2O), per KV head. All rows
  /// of a batch alike.
  bool latest = false;
};

class Survivors : public MechanismOf<SurvivorSet>, public WeightsTaker {
 public:
  using MechanismOf::MechanismOf;
  /// The heaviest tokens and the most recent ones, per layer and KV head, of the prompt (by its column sums, see Needs)
  /// or, with a set, of that and of the prompt that was appended since. They are copies: the pages can be dropped.
  SurvivorsRef keep(SequenceState& sequence, std::optional<SurvivorsRef> set, const SurvivorsRequest& request);
  /// A row's items: the survivors and the step's own token. The weights of both go into the survivors' mass, and the
  /// own token then takes a place among them.
  void plan(const LayerContext& context, const SequenceState& sequence, SurvivorsRef set, AttendPlan& plan);
  /// For AppendRequest: the survivors stand for all that was before.
  OlderTokens* older(SurvivorsRef set) { return &kept_.get(set.id); }

  std::uint32_t most_tokens(std::uint32_t id) const override { return kept_.get(id).room + 1; }
  void take_weights(const LayerContext& context, std::span<const EmittedWeights> rows, const DeviceBuffer& scores,
                    const DeviceBuffer& lse) override;

 private:
  struct Competition;  // a layer's competition for the places of a set
  struct Row;          // a set's part of a step's update
  std::uint32_t arriving_stride(const SurvivorSet& set) const;
  HeavyCompetition competition(const BodyContext& ctx, const Competition& work, std::uint32_t kv_head) const;
  void compete(BodyContext& ctx, const Competition& work) const;
  // The twins on a GPU (launch.cc).
  void launch_competition(LaunchContext& ctx, const Competition& work) const;
  const float* launch_latest_weights(LaunchContext& ctx, const Competition& work, const std::uint32_t* slots) const;
  void launch_update(LaunchContext& ctx, const ModelShape& shape, std::uint32_t layer, const std::vector<Row>& rows,
                     const DeviceBuffer& scores, const DeviceBuffer& lse) const;
};

}  // namespace tandem
