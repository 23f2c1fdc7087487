// Plans that no shipped method makes: what is legal runs on every device, what is not is a sentence that names the
// method.
#include <any>
#include <array>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <utility>

#include "engine/common/error.h"
#include "engine/mechanisms/survivors/survivors.h"
#include "engine/mechanisms/token_choice/token_choice.h"
#include "engine/mechanisms/work_queue/work_queue.h"
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
    const std::vector<Blocks> chosen = ops.score_topk(context, requests);
    for (std::size_t i = 0; i < requests.size(); ++i)
      plan.items.push_back({.row = requests[i].sequence->row, .kv = chosen[i]});
    for (const SequenceState* sequence : context.batch)
      plan.items.push_back({.row = sequence->row, .kv = Ranges{{2 * kPart, sequence->tokens}}});
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

TEST(Plan, NoTokenIsAttendedTwice) {
  Planned overlapping([](const LayerContext& context, Ops&) {
    AttendPlan plan;
    for (const SequenceState* s : context.batch) {
      plan.items.push_back({.row = s->row, .kv = Ranges{{0, 20}}});
      plan.items.push_back({.row = s->row, .kv = Ranges{{16, s->tokens}}});
    }
    return plan;
  });
  EXPECT_THAT(refusal(overlapping, {random_prompt(30, 1), random_prompt(60, 2)}),
              AllOf(HasSubstr("'planned', step 0, layer 0: "), HasSubstr("attends tokens [16, 20) of row 0 twice")));
}

TEST(Plan, MistakesNameTheMethodAndThePlace) {
  Planned no_row([](const LayerContext& context, Ops&) {
    AttendPlan plan;
    if (context.layer == 0) plan.items.push_back({.row = 0, .kv = Ranges{{0, context.batch[0]->tokens}}});
    return plan;
  });
  EXPECT_THAT(refusal(no_row, {random_prompt(30, 1)}),
              AllOf(HasSubstr("'planned', step 0, layer 1: "), HasSubstr("leaves row 0 without attention")));
  Planned no_state([](const LayerContext& context, Ops&) {
    std::any_cast<const int&>(context.batch[0]->method);
    return AttendPlan{};
  });
  EXPECT_THAT(refusal(no_state, {random_prompt(30, 1)}),
              HasSubstr("'planned', step 0, layer 0: SequenceState::method"));
}

AttendItem fixed(Range tokens) {
  return {.row = 0, .kv = Ranges{tokens}};
}

/// What is said of a plan of one row made of these; `tasks`: those are attended apart.
std::string refusal_of(const std::function<std::vector<AttendItem>(std::uint32_t tokens)>& items,
                       const std::vector<AttendItem>& apart = {}) {
  Planned method([&](const LayerContext& context, Ops& ops) {
    AttendPlan plan;
    plan.items = items(context.batch[0]->tokens);
    if (apart.empty()) return plan;
    plan.apart[0] = apart;
    PulledTasks tasks;
    tasks.heads.estimate = [](const HeadView& view, float* out) { *out = float(view.row); };
    tasks.choose = [](std::span<const float>) { return std::vector<PullTask>{}; };
    plan.finisher = ops.use<WorkQueue>().with(std::move(tasks));
    return plan;
  });
  return refusal(method, {random_prompt(60, 1)});
}

TEST(Plan, EveryRowAttendsItsOwnToken) {
  EXPECT_THAT(refusal_of([](std::uint32_t n) {
                return std::vector{fixed({0, n - 1})};
              }),
              HasSubstr("leaves out the step's own token, 59 of row 0"));
  EXPECT_THAT(refusal_of([](std::uint32_t) { return std::vector{AttendItem{.kv = Ranges{}}}; }),
              HasSubstr("leaves out the step's own token"));
}

TEST(Plan, TokensAreThere) {
  const auto beside = [](const AttendItem& item) {
    return [item](std::uint32_t n) { return std::vector{fixed({32, n}), item}; };
  };
  EXPECT_THAT(refusal_of(beside(fixed({8, 4}))), HasSubstr("names tokens [8, 4) of 60"));
  EXPECT_THAT(refusal_of(beside(fixed({60, 62}))), HasSubstr("names tokens [60, 62) of 60"));
  AttendItem far = fixed({0, 16});
  far.row = 1;
  EXPECT_THAT(refusal_of(beside(far)), HasSubstr("names row 1 of a batch of 1"));
}

TEST(Plan, WhatIsAttendedApartIsLookedAtToo) {
  const auto rest = [](std::uint32_t n) { return std::vector{fixed({16, n})}; };
  EXPECT_EQ(refusal_of(rest, {fixed({0, 16})}), "it ran");
  EXPECT_THAT(refusal_of(rest, {fixed({0, 20})}), HasSubstr("attends tokens [16, 20) of row 0 twice"));
  EXPECT_THAT(refusal_of(rest, {fixed({0, 5000})}), HasSubstr("names tokens [0, 5000) of"));
  EXPECT_THAT(refusal_of(rest, {fixed({8, 4})}), HasSubstr("names tokens [8, 4)"));
  AttendItem far = fixed({0, 16});
  far.row = 3;
  EXPECT_THAT(refusal_of(rest, {far}), HasSubstr("names row 3 of a batch of 1"));
}

TEST(Plan, ChosenTokensAreNotAttendedTwice) {
  Planned method(
      [](const LayerContext& context, Ops& ops) {
        const SequenceState* s = context.batch[0];
        const ChooseRequest asked{s, std::any_cast<TokenChoiceRef>(s->method), s->tokens - 1, 40};
        AttendPlan plan;
        plan.items.push_back({.kv = ops.use<TokenChoices>().choose(context, std::span(&asked, 1))[0]});
        plan.items.push_back(fixed({s->tokens - 20, s->tokens}));
        return plan;
      },
      [](SequenceState& sequence, Ops& ops) { sequence.method = ops.use<TokenChoices>().make(sequence, 40); });
  EXPECT_THAT(refusal(method, {random_prompt(60, 1)}), HasSubstr("attends tokens [40, 59) of row 0 twice"));
}

TEST(Plan, BesideSurvivorsThereIsTheOwnTokenAlone) {
  class Latest : public Planned {
   public:
    using Planned::Planned;
    Needs needs(const ModelShape&) const override { return {.last_queries = 1}; }
  } method(
      [](const LayerContext& context, Ops& ops) {
        AttendPlan plan;
        const SequenceState& sequence = *context.batch[0];
        ops.use<Survivors>().plan(context, sequence, std::any_cast<SurvivorsRef>(sequence.method), plan);
        plan.items.erase(plan.items.begin());  // the own token
        plan.items.push_back(fixed({0, 128}));
        return plan;
      },
      [](SequenceState& sequence, Ops& ops) {
        sequence.method = ops.use<Survivors>().keep(sequence, {}, {0, 41, true});
      });
  EXPECT_THAT(refusal(method, {random_prompt(301, 1)}),
              HasSubstr("row 0 attends more than packed tokens, whose weights are kept, and the step's own"));
}

// A choice's residents alone would leave out what the choice misses.
TEST(Plan, ChosenResidentsWaitForTheRestOfTheChoice) {
  Planned method([](const LayerContext& context, Ops&) {
    AttendPlan plan;
    for (const SequenceState* sequence : context.batch) {
      Packed residents;
      residents.named.emplace();
      plan.items.push_back({.row = sequence->row, .kv = residents});
      plan.items.push_back({.row = sequence->row, .kv = Ranges{{0, sequence->tokens}}});
    }
    return plan;
  });
  EXPECT_THAT(refusal(method, {random_prompt(60, 1)}), HasSubstr("or when that has been recalled"));
}

TEST(Plan, AnIndexHoldsOneChoice) {
  for (const bool together : {true, false}) {
    Planned method(
        [&](const LayerContext& context, Ops& ops) {
          const SequenceState* s = context.batch[0];
          const std::array<ScoreRequest, 2> asked = {
              ScoreRequest{.sequence = s, .digests = std::any_cast<DigestRef>(s->method), .blocks = 12},
              ScoreRequest{.sequence = s, .digests = std::any_cast<DigestRef>(s->method), .blocks = 1}};
          std::vector<Blocks> chosen;
          if (together) chosen = ops.score_topk(context, asked);
          for (std::uint32_t i = 0; i < 2 && !together; ++i)
            chosen.push_back(ops.score_topk(context, std::span(&asked[i], 1))[0]);
          AttendPlan plan;
          for (Blocks& choice : chosen) {
            choice.positions.clear();  // that no token is attended twice is another rule's matter
            plan.items.push_back({.kv = choice});
          }
          plan.items.push_back(fixed({192, s->tokens}));
          return plan;
        },
        [](SequenceState& sequence, Ops& ops) {
          ops.move_to_host(sequence, {0, 192});
          sequence.method = ops.build_digests(sequence, {.tokens = {0, 192}, .block = 16});
        });
    EXPECT_THAT(refusal(method, {random_prompt(301, 1)}), HasSubstr("two choices"));
    EXPECT_THAT(refusal(method, {random_prompt(301, 1)}), HasSubstr("build an index for each"));
  }
}

TEST(Plan, AChoiceIsOfTheRowsOwnSequence) {
  Planned method(
      [](const LayerContext& context, Ops& ops) {
        AttendPlan plan;
        std::vector<ScoreRequest> asked;
        for (const SequenceState* s : context.batch)
          asked.push_back({.sequence = s, .digests = std::any_cast<DigestRef>(s->method), .blocks = 2});
        const std::vector<Blocks> chosen = ops.score_topk(context, asked);
        for (std::uint32_t row = 0; row < 2; ++row) {
          plan.items.push_back({.row = row, .kv = chosen[1 - row]});
          plan.items.push_back({.row = row, .kv = Ranges{{192, context.batch[row]->tokens}}});
        }
        return plan;
      },
      [](SequenceState& sequence, Ops& ops) {
        ops.move_to_host(sequence, {0, 192});
        sequence.method = ops.build_digests(sequence, {.tokens = {0, 192}, .block = 16});
      });
  EXPECT_THAT(refusal(method, {random_prompt(301, 1), random_prompt(250, 2)}),
              HasSubstr("row 0 attends tokens of another sequence"));
}

// The first layer has no digests: its choice is empty, wherever it stands.
TEST(Plan, AnEmptyChoiceOverlapsNothing) {
  Planned method(
      [](const LayerContext& context, Ops& ops) {
        const SequenceState* s = context.batch[0];
        const ScoreRequest asked{.sequence = s, .digests = std::any_cast<DigestRef>(s->method), .blocks = 6};
        AttendPlan plan;
        plan.items.push_back({.kv = ops.score_topk(context, std::span(&asked, 1))[0]});
        if (context.layer == 0) {
          plan.items.push_back(fixed({0, s->tokens}));
        } else {
          plan.items.push_back({.kv = Ranges{{0, 96}, {192, s->tokens}}});
        }
        return plan;
      },
      [](SequenceState& sequence, Ops& ops) {
        sequence.method =
            ops.build_digests(sequence, {.tokens = {96, 192}, .block = 16, .side = Side::device, .first_layer = 1});
      });
  EXPECT_EQ(refusal(method, {random_prompt(301, 1)}), "it ran");
}

TEST(Plan, MistakesInOtherHooksNameTheMethodToo) {
  const auto all = [](const LayerContext& context, Ops&) {
    AttendPlan plan;
    plan.items.push_back(fixed({0, context.batch[0]->tokens}));
    return plan;
  };
  Planned no_state(all, [](SequenceState& sequence, Ops&) { std::any_cast<const int&>(sequence.method); });
  EXPECT_THAT(refusal(no_state, {random_prompt(30, 1)}),
              HasSubstr("'planned', context_ready of request 0: SequenceState::method"));
  Planned not_whole(all, [](SequenceState& sequence, Ops& ops) { ops.move_to_host(sequence, {0, 20}); });
  EXPECT_THAT(refusal(not_whole, {random_prompt(30, 1)}), HasSubstr("'planned', context_ready of request 0: "));
  class AfterStep : public Planned {
   public:
    using Planned::Planned;
    void after_step(const StepContext&, Ops&) override { std::vector<int>().at(3) = 1; }
  } after_step(all);
  EXPECT_THAT(refusal(after_step, {random_prompt(30, 1)}), HasSubstr("'planned', after_step of step 0: vector"));
}

}  // namespace
}  // namespace tandem::testing
