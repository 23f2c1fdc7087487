// Tokens that survive on the device by the attention mass that they have gathered, per layer and KV head (H2O, Zhang et
// al. 2023, section 4; TOVA's rule with `latest`): the choice when a prompt is there, and in every step the update
// after the attention.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/device/device.h"
#include "engine/kv/kv_store.h"
#include "engine/mechanisms/survivors/kernels/heavy.h"
#include "engine/runtime/mechanism.h"
#include "engine/runtime/weights.h"

namespace tandem {

// Tokens of a sequence that survived on the device, per layer and KV head, with the attention mass that each has
// gathered (H2O, Zhang et al. 2023). Which tokens they are is known to operation bodies only; every KV head of a layer
// holds the same number.
//   kv:        [layer][kv_head]{K [room][D], V [room][D]} of KvShape::type
//   mass:      [layer][kv_head][room] f32, summed over the query heads of the group and all queries so far
//   positions: [layer][kv_head][room] u32
//   arriving:  [layer][kv_head][tokens] f32, mass of a new prompt's tokens while it is being computed
struct SurvivorSet final : OlderTokens {
  static constexpr const char* kName = "set of survivors";
  SequenceId sequence = 0;
  KvShape shape;
  std::uint32_t room = 0;           // tokens
  std::uint32_t window = 0;         // most recent tokens that nothing displaces
  bool latest = false;              // mass is the latest query's alone, and all KV heads hold the same tokens
  std::vector<std::uint32_t> held;  // [layer] tokens
  DeviceBuffer kv, mass, positions;
  Range arriving_tokens{0, 0};
  DeviceBuffer arriving;

  std::size_t list(std::uint32_t layer, std::uint32_t kv_head) const {  // in tokens
    return (std::size_t{layer} * shape.kv_heads + kv_head) * room;
  }
  std::size_t half_bytes() const { return std::size_t{room} * shape.vector_bytes(); }  // K or V of a KV head
  std::size_t kv_offset(std::uint32_t layer, std::uint32_t kv_head) const {            // of K, in bytes
    return (std::size_t{layer} * shape.kv_heads + kv_head) * 2 * half_bytes();
  }
  /// K, V, mass and position of a token of one KV head.
  std::size_t token_bytes() const override { return 2 * shape.vector_bytes() + sizeof(float) + sizeof(std::uint32_t); }
  /// All of a layer.
  void append_access(std::uint32_t layer, bool write, std::vector<Access>& out) const {
    for (const DeviceBuffer* buffer : {&kv, &mass, &positions})
      out.push_back(write ? buffer->writes(layer, layer + 1) : buffer->reads(layer, layer + 1));
  }

  void begin_prompt(Device& device, Range tokens) override {
    arriving_tokens = tokens;
    arriving =
        device.allocate_device(std::size_t{shape.layers} * shape.kv_heads * (tokens.end - tokens.begin) * sizeof(float),
                               "append: attention mass");
  }
  std::uint32_t count(std::uint32_t layer) const override { return held[layer]; }
  void append_prompt_access(std::uint32_t layer, std::vector<Access>& out) const override {
    append_access(layer, true, out);
    out.push_back(arriving.writes(layer, layer + 1));
  }
  KvSpan span(const BodyContext& ctx, std::uint32_t layer, std::uint32_t kv_head) const override {
    const char* const k = ctx.read<char>(kv) + kv_offset(layer, kv_head);
    return {k, k + half_bytes(), held[layer], ~0u};
  }
  Mass mass_of(const BodyContext& ctx, std::uint32_t layer, std::uint32_t kv_head) const override {
    const std::size_t tokens = arriving_tokens.end - arriving_tokens.begin;
    return {ctx.write<float>(mass) + list(layer, kv_head),
            ctx.write<float>(arriving) + (std::size_t{layer} * shape.kv_heads + kv_head) * tokens};
  }
  std::size_t bytes(Tier tier) const {
    return tier == Tier::host ? 0 : kv.bytes() + mass.bytes() + positions.bytes() + arriving.bytes();
  }
};

/// Empty.
inline SurvivorSet make_survivor_set(Device& device, SequenceId sequence, const KvShape& shape, std::uint32_t room,
                                     std::uint32_t window) {
  SurvivorSet set;
  set.sequence = sequence;
  set.shape = shape;
  set.room = room;
  set.window = window;
  set.held.resize(shape.layers);
  const std::size_t tokens = std::size_t{shape.layers} * shape.kv_heads * room;
  set.kv = device.allocate_device(2 * tokens * shape.vector_bytes(), "heavy kv");
  set.mass = device.allocate_device(tokens * sizeof(float), "attention mass");
  set.positions = device.allocate_device(tokens * sizeof(std::uint32_t), "heavy positions");
  return set;
}

using SurvivorsRef = Ref<SurvivorSet>;  // a sequence's survivors

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
  // The twins on a GPU.
  const float* launch_latest_weights(LaunchContext& ctx, const Competition& work, const std::uint32_t* slots) const;
};

}  // namespace tandem
