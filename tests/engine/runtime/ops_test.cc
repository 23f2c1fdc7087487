// KV that a method moves and evicts (Ops): what a recycled page waits for, and what is refused.
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <utility>

#include "engine/common/error.h"
#include "tests/engine/runtime/tiny.h"

namespace tandem::testing {
namespace {

using ::testing::HasSubstr;

/// Attends all tokens of its sequences except a gap. Between two steps and before the first it does what a test says.
class Moving : public Method {
 public:
  using Hook = std::function<void(SequenceState&, Ops&)>;
  Moving(Range gap, Hook ready, Hook between = {})
      : gap_(gap), ready_(std::move(ready)), between_(std::move(between)) {}
  std::string spelled_out() const override { return "moving"; }
  Needs needs(const ModelShape&) const override { return {}; }
  void context_ready(SequenceState& sequence, Ops& ops) override {
    if (ready_) ready_(sequence, ops);
  }
  AttendPlan plan_attend(const LayerContext& context, Ops&) override {
    AttendPlan plan;
    for (const SequenceState* s : context.batch) {
      const Range gap = s->tokens > gap_.end ? gap_ : Range{0, 0};
      plan.items.push_back({.row = s->row, .kv = Ranges::around(gap, s->tokens)});
    }
    return plan;
  }
  void after_step(const StepContext& context, Ops& ops) override {
    for (SequenceState* s : context.batch)
      if (between_) between_(*s, ops);
  }

 private:
  Range gap_;
  Hook ready_, between_;
};

void copy_all_layers(const SequenceState& sequence, Range tokens, Ops& ops) {
  const CopyRequest request{&sequence, tokens};
  for (std::uint32_t layer = 0; layer < ops.shape().layers; ++layer) ops.copy_to_host(layer, {&request, 1});
}

std::string refusal(Bench& bench, Method& method, std::uint32_t tokens, std::uint32_t steps) {
  try {
    bench.decode(method, {random_prompt(tokens + 1, 1)}, steps);
  } catch (const LogicError& error) {
    return error.what();
  }
  return "it ran";
}

// The step after next takes the dropped page's slots. The simulated device checks that the copies are done by then.
TEST(Drop, WaitsForCopiesThatStillReadThePage) {
  constexpr Range kPage{32, 48};
  Moving method(kPage, {}, [&](SequenceState& sequence, Ops& ops) {
    if (sequence.tokens != kPage.end) return;
    copy_all_layers(sequence, kPage, ops);
    ops.drop(sequence, kPage);
  });
  Bench bench(tiny_model());
  EXPECT_EQ(refusal(bench, method, kPage.begin, 20), "it ran");
}

TEST(MoveToHost, RefusesAPageThatIsInHostMemory) {
  Moving method({0, kPageTokens}, [](SequenceState& sequence, Ops& ops) {
    copy_all_layers(sequence, {0, kPageTokens / 2}, ops);
    ops.move_to_host(sequence, {0, kPageTokens});  // the second half of the page would be lost
  });
  Bench bench(tiny_model());
  EXPECT_THAT(refusal(bench, method, 40, 2), HasSubstr("in host memory already"));
}

TEST(Drop, APlanThatAttendsDroppedTokensIsRefusedWhereOnlyShapesAreSimulated) {
  Moving method({0, 0}, [](SequenceState& sequence, Ops& ops) { ops.drop(sequence, {0, kPageTokens}); });
  Bench real(tiny_model());
  EXPECT_THAT(refusal(real, method, 40, 2), HasSubstr("not all on the device"));
  Model shape = tiny_model();
  shape.weights = shape_weights(shape.config, DType::f32);
  EngineOptions options;
  options.workload = std::make_shared<const Workload>(Workload{"test", "made up", {{{2, 0.5, 0.9}}}});
  Bench shapes(std::move(shape), make_sim_device(load_profile("fluxion-a100"), {.shapes_only = true}), options);
  EXPECT_THAT(refusal(shapes, method, 40, 2), HasSubstr("not all on the device"));
}

}  // namespace
}  // namespace tandem::testing
