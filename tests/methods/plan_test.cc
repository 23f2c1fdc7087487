// Plans that no shipped method makes: what is legal runs on every device, what is not is a sentence that names the
// method.
#include <any>
#include <array>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <utility>

#include "engine/common/error.h"
#include "methods/registry.h"
#include "tests/engine/runtime/tiny.h"

namespace tandem::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class Planned : public Method {
 public:
  using Plan = std::function<AttendPlan(const LayerContext&, Ops&)>;
  explicit Planned(Plan plan, std::function<void(SequenceState&, Ops&)> ready = {})
      : plan_(std::move(plan)), ready_(std::move(ready)) {}
  std::string spelled_out() const override { return "planned"; }
  Needs needs(const ModelShape&) const override { return {}; }
  void context_ready(SequenceState& sequence, Ops& ops) override {
    if (ready_) ready_(sequence, ops);
  }
  AttendPlan plan_attend(const LayerContext& context, Ops& ops) override { return plan_(context, ops); }

 private:
  Plan plan_;
  std::function<void(SequenceState&, Ops&)> ready_;
};

std::string refusal(Method& method, const std::vector<std::vector<std::int32_t>>& prompts) {
  Bench bench(tiny_model());
  try {
    bench.decode(method, prompts, 3);
  } catch (const LogicError& error) {
    return error.what();
  }
  return "it ran";
}

// Two digest indices over adjacent parts of the context, all of whose blocks are chosen: full attention.
Planned two_selections(Side side) {
  constexpr std::uint32_t kPart = 96;
  using Parts = std::array<DigestRef, 2>;
  const auto chooses = [side](const LayerContext& context, Ops& ops) {
    AttendPlan plan;
    std::vector<ScoreRequest> requests;
    for (const SequenceState* sequence : context.batch)
      for (const DigestRef& part : std::any_cast<const Parts&>(sequence->method))
        requests.push_back({.sequence = sequence, .digests = part, .blocks = kPart / 16});
    const std::vector<SelectionRef> chosen = ops.score_topk(context, requests);
    for (std::size_t i = 0; i < requests.size(); ++i)
      plan.items.push_back({.row = requests[i].sequence->row, .pages = {chosen[i]}, .side = side});
    for (const SequenceState* sequence : context.batch)
      plan.items.push_back({.row = sequence->row, .pages = {StaticTokens{{{2 * kPart, sequence->tokens}}}}});
    return plan;
  };
  return Planned(chooses, [side](SequenceState& sequence, Ops& ops) {
    if (side == Side::host) ops.move_to_host(sequence, {0, 2 * kPart});
    Parts parts;
    for (std::uint32_t i = 0; i < 2; ++i)
      parts[i] = ops.build_digests(sequence, {.tokens = {i * kPart, (i + 1) * kPart}, .block = 16, .side = side});
    sequence.method = parts;
  });
}

TEST(Plan, OnTheDeviceARowHasOneSelection) {
  Planned method = two_selections(Side::device);
  EXPECT_THAT(refusal(method, {random_prompt(301, 1)}), HasSubstr("a row attends two selections"));
}

TEST(Plan, ARowMayAttendSeveralSelectionsOnTheHost) {
  Planned method = two_selections(Side::host);
  const std::vector<std::vector<std::int32_t>> prompts = {random_prompt(301, 1), random_prompt(230, 2)};
  for (const bool simulated : {true, false}) {
    Bench bench(tiny_model(), simulated ? sim() : make_emu_device({.host_worker_threads = 2}), {}, 2);
    const DecodeResult full = bench.decode(*make_method("full"), prompts, 5), mine = bench.decode(method, prompts, 5);
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      EXPECT_EQ(mine.sequences[i].tokens, full.sequences[i].tokens);
      EXPECT_EQ(mine.sequences[i].attended[0] + mine.sequences[i].attended[1], full.sequences[i].attended[0]);
    }
  }
}

TEST(Plan, NoTokenIsAttendedTwiceForAHead) {
  Planned overlapping([](const LayerContext& context, Ops&) {
    AttendPlan plan;
    for (const SequenceState* s : context.batch) {
      plan.items.push_back({.row = s->row, .pages = {StaticTokens{{{0, 20}}}}});
      plan.items.push_back({.row = s->row, .pages = {StaticTokens{{{16, s->tokens}}}}});
    }
    return plan;
  });
  EXPECT_THAT(refusal(overlapping, {random_prompt(30, 1), random_prompt(60, 2)}),
              AllOf(HasSubstr("'planned', step 0, layer 0: "), HasSubstr("attends tokens [16, 20) of row 0 twice")));

  Planned by_heads([](const LayerContext& context, Ops&) {
    AttendPlan plan;
    for (const SequenceState* s : context.batch)
      for (const Range heads : {Range{0, 1}, Range{1, 2}})
        plan.items.push_back({.row = s->row, .kv_heads = heads, .pages = {StaticTokens{{{0, s->tokens}}}}});
    return plan;
  });
  EXPECT_EQ(refusal(by_heads, {random_prompt(30, 1)}), "it ran") << "each head once";
}

TEST(Plan, MistakesNameTheMethodAndThePlace) {
  Planned no_row([](const LayerContext& context, Ops&) {
    AttendPlan plan;
    if (context.layer == 0) plan.items.push_back({.row = 0, .pages = {StaticTokens{{{0, context.batch[0]->tokens}}}}});
    return plan;
  });
  EXPECT_THAT(refusal(no_row, {random_prompt(30, 1)}),
              AllOf(HasSubstr("'planned', step 0, layer 1: "), HasSubstr("leaves a row without attention")));
  Planned no_state([](const LayerContext& context, Ops&) {
    std::any_cast<const int&>(context.batch[0]->method);
    return AttendPlan{};
  });
  EXPECT_THAT(refusal(no_state, {random_prompt(30, 1)}),
              HasSubstr("'planned', step 0, layer 0: SequenceState::method"));
}

}  // namespace
}  // namespace tandem::testing
