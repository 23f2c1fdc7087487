// What the rows of a batch have to have in common, which every device asks for: a plan that the simulated one takes is
// one that a GPU takes.
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/common/error.h"
#include "engine/mechanisms/partial_key_index/partial_key_indexes.h"
#include "engine/mechanisms/token_choice/token_choice.h"
#include "tests/engine/runtime/tiny.h"

namespace tandem::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

/// Two rows; how they are made ready and what they attend is up to a test. `ready` is told which of them it is.
struct TwoRows : public Method {
  std::function<void(SequenceState&, Ops&, std::size_t row)> ready;
  std::function<AttendPlan(const LayerContext&, Ops&)> plan;
  std::size_t rows = 0;

  std::string spelled_out() const override { return "two-rows"; }
  Needs needs(const ModelShape&) const override { return {.last_queries = 16}; }
  void context_ready(SequenceState& sequence, Ops& ops) override { ready(sequence, ops, rows++); }
  AttendPlan plan_attend(const LayerContext& context, Ops& ops) override { return plan(context, ops); }
};

constexpr std::uint32_t kPrompt = 100, kChosenFrom = 64;

void decode(TwoRows& method, std::unique_ptr<Device> device) {
  Bench bench(tiny_model(), std::move(device));
  method.rows = 0;
  bench.decode(method, {random_prompt(kPrompt, 1), random_prompt(kPrompt, 2)}, 2);
}

void expect_refused(TwoRows& method, const char* message) {
  EXPECT_THAT([&] { decode(method, sim()); }, ThrowsMessage<LogicError>(HasSubstr(message)));
  EXPECT_THAT([&] { decode(method, make_emu_device()); }, ThrowsMessage<LogicError>(HasSubstr(message)));
}

constexpr const char* kAlike = "the rows of a batch choose alike";

/// With digests on the device of the tokens that are chosen from.
struct Digested : public TwoRows {
  DigestRef digests[2];

  Digested() {
    ready = [this](SequenceState& sequence, Ops& ops, std::size_t row) {
      digests[row] = ops.build_digests(sequence, {.tokens = {0, kChosenFrom}, .block = 16, .side = Side::device});
    };
  }
  ScoreRequest request(const LayerContext& context, std::size_t row) const {
    return {.sequence = context.batch[row], .digests = digests[row], .blocks = 2};
  }
  /// The rest of both rows.
  static AttendPlan behind(const LayerContext& context) {
    AttendPlan rest;
    for (std::uint32_t row = 0; row < 2; ++row)
      rest.items.push_back({.row = row, .kv = Ranges{{kChosenFrom, context.batch[row]->tokens}}});
    return rest;
  }
};

TEST(AlikeRows, HaveOneScopeAndOneReduction) {
  for (const bool scopes : {false, true}) {
    Digested method;
    bool alike = true;
    method.plan = [&](const LayerContext& context, Ops& ops) {
      std::vector<ScoreRequest> requests = {method.request(context, 0), method.request(context, 1)};
      for (ScoreRequest& request : requests) request.scope = Scope::kv_head;
      if (!alike && scopes) requests[1].scope = Scope::layer;
      if (!alike && !scopes) requests[1].reduce = Reduce::mean;
      const std::vector<Blocks> chosen = ops.score_topk(context, requests);
      AttendPlan plan = Digested::behind(context);
      for (std::uint32_t row = 0; row < 2; ++row) plan.items.push_back({.row = row, .kv = chosen[row]});
      return plan;
    };
    decode(method, sim());
    alike = false;
    expect_refused(method, kAlike);
  }
}

// Chosen one by one, so that the choices have nothing in common but the attention.
TEST(AlikeRows, AttendSelectionsOfOneScopeOnce) {
  enum Mistake { none, other_scope, not_own_only, twice };
  for (const Mistake mistake : {none, other_scope, not_own_only, twice}) {
    Digested method;
    method.plan = [&](const LayerContext& context, Ops& ops) {
      AttendPlan plan = Digested::behind(context);
      for (std::uint32_t row = 0; row < 2; ++row) {
        ScoreRequest request = method.request(context, row);
        if (mistake == other_scope && row == 1) request.scope = Scope::kv_head;
        AttendItem item{.row = row, .kv = ops.score_topk(context, {&request, 1})[0]};
        if (mistake == not_own_only && row == 1) item.own_only = false;
        plan.items.push_back(item);
        if (mistake == twice && row == 1) plan.items.push_back(item);
      }
      return plan;
    };
    if (mistake == none)
      decode(method, sim());
    else
      expect_refused(method, mistake == twice ? "of row 1 twice" : kAlike);
  }
}

TEST(AlikeRows, FetchSelectionsOfOneScope) {
  Digested method;
  StagingRef stagings[2];
  bool alike = true;
  method.ready = [&, build = method.ready](SequenceState& sequence, Ops& ops, std::size_t row) {
    build(sequence, ops, row);
    ops.move_to_host(sequence, {0, kChosenFrom});
    stagings[row] = ops.make_staging(sequence, kChosenFrom, 2);
  };
  method.plan = [&](const LayerContext& context, Ops& ops) {
    std::vector<FetchRequest> requests;
    for (std::uint32_t row = 0; row < 2; ++row) {
      ScoreRequest request = method.request(context, row);
      if (!alike && row == 1) request.scope = Scope::kv_head;
      requests.push_back({request.sequence, stagings[row], ops.score_topk(context, {&request, 1})[0]});
    }
    const std::vector<KvSource> fetched = ops.fetch(context.layer, requests);
    AttendPlan plan = Digested::behind(context);
    for (std::uint32_t row = 0; row < 2; ++row) plan.items.push_back({.row = row, .kv = fetched[row]});
    return plan;
  };
  decode(method, sim());
  alike = false;
  expect_refused(method, kAlike);
}

TEST(AlikeRows, GetDigestsOfOneSizeTogether) {
  TwoRows method;
  DigestRef digests[2];
  bool alike = true;
  method.ready = [&](SequenceState& sequence, Ops& ops, std::size_t row) {
    digests[row] = ops.build_digests(
        sequence, {.tokens = {0, 32}, .block = alike || row == 0 ? 16u : 32u, .side = Side::device, .grows = true});
  };
  method.plan = [&](const LayerContext& context, Ops& ops) {
    std::vector<DigestExtension> extensions;
    AttendPlan plan;
    for (std::uint32_t row = 0; row < 2; ++row) {
      extensions.push_back({context.batch[row], digests[row], kChosenFrom});
      plan.items.push_back({.row = row, .kv = Ranges{{0, context.batch[row]->tokens}}});
    }
    ops.extend_digests(context.layer, extensions);
    return plan;
  };
  decode(method, sim());
  alike = false;
  expect_refused(method, "digests of 16 and of 32 tokens at once");
}

TEST(AlikeRows, ChooseBlocksOrSingleTokens) {
  Digested method;
  TokenChoiceRef choice;
  bool alike = true;
  method.ready = [&, build = method.ready](SequenceState& sequence, Ops& ops, std::size_t row) {
    build(sequence, ops, row);
    if (row == 1) choice = ops.use<TokenChoices>().make(sequence, 8);
  };
  method.plan = [&](const LayerContext& context, Ops& ops) {
    AttendPlan plan = Digested::behind(context);
    const ScoreRequest blocks[] = {method.request(context, 0), method.request(context, 1)};
    plan.items.push_back({.row = 0, .kv = ops.score_topk(context, {blocks, 1})[0]});
    if (alike) {
      plan.items.push_back({.row = 1, .kv = ops.score_topk(context, {blocks + 1, 1})[0]});
    } else {
      const ChooseRequest tokens{context.batch[1], choice, kChosenFrom, 8};
      plan.items.push_back({.row = 1, .kv = ops.use<TokenChoices>().choose(context, {&tokens, 1})[0]});
    }
    return plan;
  };
  decode(method, sim());
  alike = false;
  expect_refused(method, kAlike);
}

TEST(AlikeRows, SpeculateInOneUnitByIndexesOfOneKind) {
  for (int different = 0; different < 3; ++different) {
    TwoRows method;
    KeyIndexRef indexes[2];
    bool alike = true;
    method.ready = [&](SequenceState& sequence, Ops& ops, std::size_t row) {
      KeyIndexRequest request{.columns = 8, .unit = 32, .most = 1};
      if (!alike && row == 1) {
        if (different == 0) request.unit = 1;
        if (different == 1) request.columns = 4;
        if (different == 2) request.scope = Scope::layer;
      }
      indexes[row] = ops.use<PartialKeyIndexes>().index_keys(sequence, request);
    };
    method.plan = [&](const LayerContext& context, Ops& ops) {
      std::vector<SpeculateRequest> requests;
      for (std::uint32_t row = 0; row < 2; ++row) requests.push_back({context.batch[row], indexes[row], 1, 4});
      const SpeculatedKv fetched = ops.use<PartialKeyIndexes>().fetch(context, ops.layer_query(context), requests);
      AttendPlan plan;
      for (std::uint32_t row = 0; row < 2; ++row) {
        plan.items.push_back({.row = row, .kv = fetched.fetched[row]});
        plan.items.push_back({.row = row, .kv = Ranges{{96, context.batch[row]->tokens}}});
      }
      return plan;
    };
    decode(method, sim());
    alike = false;
    expect_refused(method, kAlike);
  }
}

}  // namespace
}  // namespace tandem::testing
