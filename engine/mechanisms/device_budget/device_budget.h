// KV of a whole batch under a device budget (engine/runtime/kv_offload.h): every layer's pages are on the device when
// its attention reads them, and a share of all of them otherwise. Attention mass, which decides who leaves, is measured
// on the device in every layer: the attention writes its scores, a kernel sums them by unit, and a copy brings the sums
// to the control thread after the step. Where only shapes are simulated there are no weights, and all units weigh the
// same.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/device/device.h"
#include "engine/kv/kv_store.h"
#include "engine/runtime/kv_offload.h"
#include "engine/runtime/mechanism.h"
#include "engine/runtime/weights.h"

namespace tandem {

// Decayed attention mass of a sequence's units, averaged over layers and query heads: [unit] f32.
struct UnitMass {
  static constexpr const char* kName = "attention mass by unit";
  SequenceId sequence = 0;
  DeviceBuffer values;
  HostBuffer on_host;
  std::uint32_t units = 0;  // that there is room for
  Event landed;             // the copy to the host

  std::size_t bytes(Tier tier) const { return tier == Tier::device ? values.bytes() : on_host.bytes(); }
};

struct DeviceShare {
  /// Most of all KV, at the sequences' max_tokens, that stays on the device; what never leaves comes on top.
  double share = 1;
  OffloadPolicy policy;  // the same for all sequences of a session
};

class DeviceBudget : public Mechanism, public WeightsTaker {
 public:
  static constexpr float kDecay = 0.95F;  // of the mass, by step

  using Mechanism::Mechanism;
  /// After a prompt: manages the sequence. InputError where the share has no room for the layers that must be on the
  /// device together.
  void open(SequenceState& sequence, const DeviceShare& share);
  /// The sequence's max_tokens has grown: before more tokens come.
  void refit(SequenceState& sequence, const DeviceShare& share);
  /// In before_layer and after_layer of every layer, and in after_step.
  void before_layer(const LayerContext& context);
  void after_layer(const LayerContext& context);
  void after_step(const StepContext& context);
  /// A row's only item: all its tokens.
  AttendItem item(const SequenceState& sequence);
  /// For AppendRequest, of a prompt behind so many tokens.
  LayerKeeper* keeper(const SequenceState& sequence, std::uint32_t tokens);

  void forget(SequenceId sequence) override;
  std::size_t bytes_of(SequenceId sequence, Tier tier) const override { return mass_.bytes_of(sequence, tier); }
  std::uint32_t most_tokens(std::uint32_t id) const override;
  void take_weights(const LayerContext& context, std::span<const EmittedWeights> rows, const DeviceBuffer& scores,
                    const DeviceBuffer& lse) override;

 private:
  struct Managed {
    SequenceId id = 0;
    std::size_t slots = 0;   // of the budget
    std::uint32_t mass = 0;  // in mass_
  };
  Managed& managed(SequenceId id);
  std::size_t slots_of(const SequenceState& sequence, const DeviceShare& share) const;
  void set_budget();
  UnitMass make_mass(const SequenceState& sequence);

  std::unique_ptr<KvOffload> offload_;
  std::vector<Managed> managed_;
  PerSequence<UnitMass> mass_;
  Event ready_;  // of the layer that runs
};

}  // namespace tandem
