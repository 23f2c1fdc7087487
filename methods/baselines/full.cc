#include "methods/baselines/baselines.h"

namespace tandem {
namespace {

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

}  // namespace

MethodInfo full_info() {
  MethodInfo info;
  info.name = "full";
  info.summary = "all KV on the device, dense attention";
  info.description =
      "Every token's KV stays in device memory and every step attends to all of it. The reference for accuracy; its "
      "device "
      "memory grows with the context. New tokens: appended on the device.";
  info.source = "-";
  info.make = [](const MethodSpec& spec) -> std::unique_ptr<Method> {
    OptionSet("full").parse(spec);
    return std::make_unique<Full>();
  };
  return info;
}

}  // namespace tandem
