// KV of a whole batch under a device budget (engine/runtime/kv_offload.h): what a layer's attention reads is on the
// device then, and a share of all KV otherwise. That is the whole layer, brought ahead, or what a step's choice names:
// then the chosen blocks' numbers cross to the host, and the control thread waits for them before it can ask.
//
// Attention mass, which decides who leaves under Eviction::attention, has one of two sources. It is measured on the
// device in every layer: the attention writes its scores, a kernel sums them by unit, and a copy brings the sums to the
// control thread after the step (where only shapes are simulated there are no weights, and all units weigh the same).
// Or it counts the heads that chose a unit, which the control thread has for nothing.
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

enum class MassFrom : std::uint8_t { weights, choices, nothing };

struct DeviceShare {
  /// Most of all KV, at the sequences' max_tokens, that stays on the device; what never leaves comes on top.
  double share = 1;
  OffloadPolicy policy;  // the same for all sequences of a session
  MassFrom mass = MassFrom::nothing;
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
  /// Brings all of a layer, and layers ahead. In before_layer of every layer.
  void before_layer(const LayerContext& context);
  Event ready() const { return ready_; }  // when it is there
  /// Lets a plan wait for it, and leaves the attention's weights where they are measured.
  void arrive(const LayerContext& context, AttendPlan& plan);
  /// In place of both: brings the ranges and blocks of the store that the plan names, and lets it wait for them.
  void bring(const LayerContext& context, AttendPlan& plan);
  /// After every layer, behind all that reads its KV, and after every step.
  void after_layer(const LayerContext& context);
  void after_step(const StepContext& context);
  /// For AppendRequest.
  LayerKeeper* keeper() { return offload_.get(); }

  void forget(SequenceId sequence) override;
  std::size_t bytes_of(SequenceId sequence, Tier tier) const override { return mass_.bytes_of(sequence, tier); }
  std::uint32_t most_tokens(std::uint32_t id) const override;
  void take_weights(const LayerContext& context, std::span<const EmittedWeights> rows, const DeviceBuffer& scores,
                    const DeviceBuffer& lse) override;

 private:
  struct Managed {
    SequenceId id = 0;
    std::size_t slots = 0;                // of the budget
    std::uint32_t mass = 0;               // in mass_
    HostBuffer choice;                    // of the latest layer, as DigestIndex::selection
    std::uint32_t stride = 1, lists = 0;  // of `choice`: u32 from one list to the next
    std::vector<float> chosen;            // [unit] decayed count of the lists that named it, over all lists of a step
  };
  Managed& managed(SequenceId id);
  std::size_t slots_of(const SequenceState& sequence, const DeviceShare& share) const;
  void set_budget();
  std::uint32_t units_of(const SequenceState& sequence) const;
  UnitMass make_mass(const SequenceState& sequence);
  /// The last operation on the device that may read KV.
  Event last_reader() const;
  /// Evicts until the budget holds and every sequence can grow by a token.
  void fit();
  bool measures() const { return mass_from_ == MassFrom::weights; }
  /// Brings the numbers of chosen blocks to the host and waits for them.
  void wait_for_choices(const LayerContext& context, const AttendPlan& plan);
  /// Adds an item's units, ascending.
  void add_units(const LayerContext& context, const AttendItem& item, std::vector<std::uint32_t>& units);
  void ask_for(std::span<const NeededKv> needed, std::uint32_t layer);

  std::unique_ptr<KvOffload> offload_;
  std::vector<Managed> managed_;
  PerSequence<UnitMass> mass_;
  MassFrom mass_from_ = MassFrom::nothing;
  Event ready_;              // of the layer that runs
  std::uint64_t found_ = 0;  // bytes that it found
};

}  // namespace tandem
