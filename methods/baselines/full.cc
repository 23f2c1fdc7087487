#include <memory>

#include "engine/common/error.h"
#include "engine/mechanisms/device_budget/device_budget.h"
#include "methods/baselines/baselines.h"
#include "methods/common_options.h"

namespace tandem {
namespace {

struct FullOptions {
  double device = 1;
  std::string evict = "attention";
  std::uint32_t block = 32, sinks = 4, window = 32, look_ahead = 1;
  OptionSet bind() {
    OptionSet set("full");
    add_device_option(set, device, "and comes back for every layer");
    add_evict_option(set, evict, {"fixed", "lru", "attention"});
    set.number_of("block", block, {16, 32, 256}, "tokens that move together");
    set.tokens("sinks", sinks, "first tokens that never leave under evict=attention");
    set.tokens("window", window, "most recent tokens that never leave under evict=attention");
    add_look_ahead_option(set, look_ahead);
    return set;
  }
  DeviceShare share() const {
    return {
        device,
        {.eviction = eviction_of(evict), .block = block, .sinks = sinks, .window = window, .look_ahead = look_ahead},
        MassFrom::weights};
  }
};

/// All KV on the device, dense attention: what every other method is compared with.
class Full : public Method {
 public:
  std::string spelled_out() const override { return "full"; }
  Needs needs(const ModelShape&) const override { return {.lossless = true}; }
  AttendPlan plan_attend(const LayerContext& context, Ops&) override {
    AttendPlan plan;
    for (const SequenceState* sequence : context.batch) {
      plan.items.push_back({.row = sequence->row, .kv = Ranges{{0, sequence->tokens}}});
    }
    return plan;
  }
};

/// The same where the device keeps a share of KV only, and gets the rest back for every layer.
class FullUnderBudget : public Method {
 public:
  explicit FullUnderBudget(FullOptions options) : options_(std::move(options)) {}

  std::string spelled_out() const override {
    FullOptions copy = options_;
    return copy.bind().spelled_out();
  }
  Needs needs(const ModelShape&) const override { return {.lossless = true, .host_prompts = true}; }

  void context_ready(SequenceState& sequence, Ops& ops) override {
    ops.use<DeviceBudget>().open(sequence, options_.share());
  }
  void before_layer(const LayerContext& context, Ops& ops) override { ops.use<DeviceBudget>().before_layer(context); }
  AttendPlan plan_attend(const LayerContext& context, Ops& ops) override {
    AttendPlan plan;
    for (const SequenceState* sequence : context.batch)
      plan.items.push_back({.row = sequence->row, .kv = Ranges{{0, sequence->tokens}}});
    ops.use<DeviceBudget>().arrive(context, plan);
    return plan;
  }
  void after_layer(const LayerContext& context, Ops& ops) override { ops.use<DeviceBudget>().after_layer(context); }
  void after_step(const StepContext& context, Ops& ops) override { ops.use<DeviceBudget>().after_step(context); }
  AppendRequest before_append(SequenceState& sequence, Range, Ops& ops) override {
    ops.use<DeviceBudget>().refit(sequence, options_.share());
    return {.keeper = ops.use<DeviceBudget>().keeper()};
  }
  void appended(SequenceState& sequence, Range, Ops& ops) override {
    ops.use<DeviceBudget>().refit(sequence, options_.share());
  }
  void goes_on(SequenceState& sequence, Ops& ops) override {
    ops.use<DeviceBudget>().refit(sequence, options_.share());
  }

 private:
  FullOptions options_;
};

}  // namespace

MethodInfo full_info() {
  MethodInfo info;
  info.name = "full";
  info.summary = "all KV on the device, dense attention";
  info.description =
      "Every token's KV stays in device memory and every step attends to all of it. The reference for accuracy; its "
      "device memory grows with the context. With device=SHARE only that share stays there, whole layers come and go, "
      "and the output is the same. New tokens: appended on the device.";
  info.source = "-";
  FullOptions defaults;
  info.options = defaults.bind().describe();
  info.make = [](const MethodSpec& spec) -> std::unique_ptr<Method> {
    FullOptions options;
    options.bind().parse(spec);
    if (options.device == 1) return std::make_unique<Full>();
    return std::make_unique<FullUnderBudget>(std::move(options));
  };
  return info;
}

}  // namespace tandem
