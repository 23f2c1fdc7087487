// AsyncSpade against an independent model of its rule in double precision; the same bits wherever the cache rank is;
// and what happens when the rank dies.
#include <algorithm>
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/common/error.h"
#include "engine/mechanisms/cache_rank/remote_rank.h"
#include "engine/runtime/decode_session.h"
#include "methods/registry.h"
#include "tests/engine/device/judge.h"
#include "tests/methods/failing_ranks.h"
#include "tests/methods/slow_spade.h"

namespace tandem::testing {
namespace {

using Vector = SlowModel::Vector;

struct Case {
  std::string options;
  LagWeights weights;
  bool all_windows, pre_rope;
  std::uint32_t window, theta, prompt;
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << c.options;
}

class AsyncSpade : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(
    Rules, AsyncSpade,
    ::testing::Values(
        Case{"place=stream,rope=post,weights=ridge_softmax", LagWeights::ridge_softmax, true, false, 16, 0, 201},
        Case{"place=host,weights=raw,windows=W,rope=pre,window=4", LagWeights::raw, false, true, 4, 0, 185},
        Case{"place=peer,weights=alg1,window=8,pack=1,rope=post", LagWeights::alg1, true, false, 8, 0, 177},
        Case{"place=stream,theta=21,rope=pre,pack=1,weights=ridge_softmax", LagWeights::ridge_softmax, true, true, 16,
             21, 150},
        Case{"place=host,theta=9,window=1,pack=2,rope=post,weights=ridge_softmax", LagWeights::ridge_softmax, true,
             false, 1, 9, 161},
        Case{"place=stream,weights=eq2,window=3,rope=post", LagWeights::eq2, true, false, 3, 0, 130},
        Case{"place=stream,window=5,rope=post,weights=ridge_softmax", LagWeights::ridge_softmax, true, false, 5, 0,
             2}));

TEST_P(AsyncSpade, EqualsTheSlowModel) {
  const Case& rule = GetParam();
  Bench bench(tiny_model(true, 3), with_peer());
  const std::vector<std::int32_t> prompt = random_prompt(rule.prompt, rule.prompt);
  std::vector<std::vector<float>> logits;
  const auto method = make_method("asyncspade:budget=64," + rule.options);
  const DecodeResult result = bench.decode(*method, {prompt}, 40, {.logits = &logits});
  PredictionRule prediction;
  prediction.weights = rule.weights;
  prediction.all_windows = rule.all_windows;
  prediction.window = rule.window;
  prediction.pre_rope = rule.pre_rope;
  SlowSpade slow(bench.model, prediction, 64, rule.theta);
  for (std::size_t t = 0; t + 1 < prompt.size(); ++t) slow.step(prompt[t], false);
  for (std::size_t n = 0; n < logits.size(); ++n) {
    const Vector expected = slow.step(n == 0 ? prompt.back() : result.sequences[0].tokens[n - 1], true);
    double worst = 0;
    for (std::size_t i = 0; i < expected.size(); ++i)
      worst = std::max(worst, std::abs(expected[i] - double(logits[n][i])));
    ASSERT_LT(worst, 3e-4) << "step " << n;
  }
  EXPECT_GT(slow.closest, 1e-7) << "float and double may choose differently here: take another prompt";
}

TEST(AsyncSpadePlaces, GiveTheSameBits) {
  std::vector<std::vector<float>> expected;
  for (const std::string place : {"stream", "host", "peer", "peer,pack=1", "host,pack=2"}) {
    for (const bool threads : {false, true}) {
      Bench bench(tiny_model(true, 3), threads ? make_emu_device({}) : with_peer());
      std::vector<std::vector<float>> logits;
      bench.decode(*make_method("asyncspade:budget=50,window=6,place=" + place), kRagged, 20, {.logits = &logits});
      if (expected.empty()) expected = logits;
      EXPECT_EQ(logits, expected) << place << (threads ? " with real threads" : "");
    }
  }
}

// Budgets that grow with the context, are below a page or above the context, and dense tokens first.
TEST(AsyncSpadePlaces, GiveTheSameBitsWithAnyBudgetAndStart) {
  for (const std::string options : {"budget=0.3,theta=5", "budget=8", "budget=4K,window=32", "budget=40,theta=30"}) {
    std::vector<std::vector<float>> expected;
    for (const std::string place : {"stream", "host", "peer"}) {
      Bench bench(tiny_model(true, 3), with_peer());
      std::vector<std::vector<float>> logits;
      bench.decode(*make_method("asyncspade:weights=ridge_softmax," + options + ",pack=2,place=" + place), kRagged, 20,
                   {.logits = &logits});
      if (expected.empty()) expected = logits;
      EXPECT_EQ(logits, expected) << options << " " << place;
    }
  }
}

TEST(AsyncSpadePlaces, OnThePeerEveryScheduleEdgeIsNeeded) {
  std::vector<ScheduleOp> schedule;
  Bench bench(tiny_model(true, 3), with_peer(&schedule));
  bench.decode(*make_method("asyncspade:budget=50,window=6,pack=2,place=peer"), {kRagged[0], kRagged[2]}, 30);
  std::size_t caught = 0;
  for (const EdgeReport& edge : judge_all_edges(schedule, &schedule_names(*bench.device))) {
    const ScheduleOp& op = schedule[edge.op_index];
    if (edge.verdict == EdgeVerdict::caught) ++caught;
    if (edge.verdict != EdgeVerdict::missed || op.lane == bench.device->lane(LaneKind::control)) continue;
    ADD_FAILURE() << "removing edge " << edge.edge_index << " of '" << op.name << "' (layer " << op.layer
                  << ") goes unnoticed";
  }
  EXPECT_GT(caught, 100u);
}

TEST(AsyncSpadePlaces, ThePeersBytesAreCountedApart) {
  Bench bench(tiny_model(true, 3), with_peer());
  const DecodeResult result = bench.decode(*make_method("asyncspade:budget=50,place=peer"), {kRagged[0]}, 12);
  CostTotals sum;
  for (const TraceRecord& r : result.trace.records) {
    const bool peer = result.trace.lanes[r.lane].kind == LaneKind::peer_compute;
    EXPECT_EQ(peer, std::string(r.name) == "select ahead") << r.name;
    (peer ? sum.peer_hbm : sum.hbm) += r.cost.hbm;
    (peer ? sum.peer_flops : sum.flops) += r.cost.flops + r.cost.solved;
    sum.peer_link += r.cost.peer;
  }
  EXPECT_GT(sum.peer_link, 0u);
  EXPECT_GT(sum.peer_flops, 0u);
  const CostTotals& total = result.idle.total;
  EXPECT_EQ(total.hbm, sum.hbm);
  EXPECT_EQ(total.flops, sum.flops);
  EXPECT_EQ(total.peer_hbm, sum.peer_hbm);
  EXPECT_EQ(total.peer_flops, sum.peer_flops);
  EXPECT_EQ(total.peer_link, sum.peer_link);
}

TEST(AsyncSpadePlaces, APlaceThatTheProfileDoesNotHaveIsASentence) {
  Bench bench(tiny_model(), sim());
  try {
    bench.decode(*make_method("asyncspade:place=peer"), {kRagged[0]}, 2);
    FAIL();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("'peer'"));
  }
}

// Forks share their prompt's pages on the device; the peer has its own copies of each.
TEST(AsyncSpadePlaces, MoreThanThePeersMemoryIsASentence) {
  HardwareProfile profile = load_profile("asyncspade-a100");
  profile.device.memory_gb = 0.08;
  EngineOptions options;
  options.max_batch = 64;
  Bench bench(tiny_model(), make_sim_device(profile, {}), options);
  const auto prefix = bench.engine.prefill(random_prompt(3000, 5));
  const auto method = make_method("asyncspade:budget=32,weights=raw,window=1,place=peer");
  const std::vector<DecodeRequest> forks(64, {prefix.get(), 2});
  const DecodeResult one = bench.engine.decode(*method, std::span(forks).first(1));
  EXPECT_EQ(one.sequences[0].peak_peer_bytes, 2u * (2992 * 256 + 2 * 64 * 4 + 32 * 256));
  try {
    bench.engine.decode(*method, forks);
    FAIL();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("The cache rank's device is full"));
    EXPECT_THAT(error.what(), ::testing::HasSubstr("0.08 GB"));
  }
  bench.engine.release(*prefix);
}

TEST(AsyncSpadeBytes, AMessageHasTheStepsQueriesAFullPageAndTheChoice) {
  for (const bool host : {true, false}) {
    Bench bench(tiny_model(true, 4), with_peer());
    const auto method =
        make_method(std::string("asyncspade:budget=50,window=6,pack=2,place=") + (host ? "host" : "peer"));
    const DecodeResult result = bench.decode(*method, {kRagged[0]}, 12);
    ASSERT_EQ(result.sequences[0].tokens.size(), 12u);
    std::vector<Cost> out, back, choice, kept;
    for (const TraceRecord& r : result.trace.records) {
      if (r.start < result.trace.steps.front().end || r.layer != 2) continue;
      if (std::string(r.name) == "keep queries") kept.push_back(r.cost);
      if (std::string(r.name) == "select ahead") choice.push_back(r.cost);
      if (std::string(r.name) == (host ? "queries to cache rank" : "message to peer")) out.push_back(r.cost);
      if (std::string(r.name) == (host ? "selection to device" : "selection from peer")) back.push_back(r.cost);
    }
    ASSERT_EQ(out.size(), 12u);
    ASSERT_EQ(back.size(), 11u);
    ASSERT_EQ(choice.size(), 12u);
    ASSERT_EQ(kept.size(), 12u);
    const std::uint64_t token = 2 * 2 * 16 * 4;  // K and V of a layer
    for (std::uint32_t step = 0; step < 12; ++step) {
      const bool page = step == 3;
      EXPECT_EQ(host ? out[step].d2h : out[step].peer, 2 * (4 * 16 * 4 + (page ? 16 * token : 0))) << step;
      EXPECT_EQ(out[step].pieces, host ? (page ? 3u : 2u) : 1u)
          << "the queries of each layer; the pages of both lie side by side: " << step;
      EXPECT_EQ(out[step].hbm, host ? 0 : out[step].peer) << "a message between devices is read in one's memory";
      EXPECT_EQ(kept[step].hbm, 2 * 4 * 16 * 4u) << "in and out";
      EXPECT_EQ(choice[step].kernels, step == 11 ? 1u : 7u) << "the new query, and two of equation 2's prediction";
      if (step == 11) continue;
      EXPECT_EQ(choice[step].tasks, host ? 4u : 0u) << "one for each layer and KV head";
      EXPECT_EQ(back[step].hbm, host ? 0 : back[step].peer);
      const std::uint32_t next = 302 + step, newest = next - (next - 1) / 16 * 16;
      EXPECT_EQ(host ? back[step].h2d : back[step].peer, 2 * (50 - newest) * token) << step;
      EXPECT_EQ(back[step].pieces, host ? 8u : 1u) << "K and V of each head and layer";
    }
  }
}

TEST(AsyncSpadePeer, ARankThatDiesOrIsSilentEndsTheDecodeWithASentence) {
  for (const bool silent : {false, true}) {
    MortalRank rank(2, silent);
    {
      EngineOptions options;
      options.peer = rank.near;
      options.peer_patience = std::chrono::milliseconds(200);
      Bench bench(tiny_model(), with_peer(), options);
      options.peer = nullptr;
      try {
        bench.decode(*make_method("asyncspade:budget=50,place=peer"), {kRagged[0]}, 5);
        FAIL();
      } catch (const RunError& error) {
        EXPECT_THAT(error.what(), ::testing::HasSubstr(silent ? "The cache rank has sent nothing for 0.2 seconds"
                                                              : "The cache rank is gone"));
      }
    }
  }
}

// Also in the very step in which another sequence ends: then the error comes while pages are given back.
TEST(AsyncSpadePeer, WhereverItsAnswersEndNoPagesAreLeftBehind) {
  int failed = 0;
  for (int answers = 0; failed == answers; ++answers) {
    RankThread rank;
    EngineOptions options;
    options.peer = std::make_shared<FailingLink>(rank.link(), answers);
    Bench bench(tiny_model(), with_peer(), options);
    const auto method = make_method("asyncspade:budget=50,place=peer,pack=1");
    // Both have begun a page of their own by then.
    const auto longer = bench.engine.prefill(random_prompt(304, 1));
    const auto shorter = bench.engine.prefill(random_prompt(176, 2));
    const std::size_t before = bench.engine.kv().bytes_in_use(Tier::device);
    const DecodeRequest requests[] = {{longer.get(), 9}, {shorter.get(), 4}};
    try {
      bench.engine.decode(*method, requests);
    } catch (const RunError&) {
      ++failed;
    }
    EXPECT_EQ(bench.engine.kv().bytes_in_use(Tier::device), before) << answers;
  }
  EXPECT_GT(failed, 8) << "answers of a decode";
}

TEST(AsyncSpadePeer, ARefusedAppendChangesNothing) {
  const auto run = [](bool append) {
    Bench bench(tiny_model(), with_peer());
    const auto method = make_method("asyncspade:budget=50,place=peer");
    const auto prefix = bench.engine.prefill(kRagged[0]);
    const DecodeRequest request{prefix.get(), 20};
    const auto session = bench.engine.open_session(*method, {&request, 1});
    std::vector<std::int32_t> tokens = session->decode({}).sequences[0].tokens;
    if (append) {
      EXPECT_THROW(session->append(0, random_prompt(33, 5), 30), InputError);
    }
    const std::vector<std::int32_t> more = session->decode({}).sequences[0].tokens;
    tokens.insert(tokens.end(), more.begin(), more.end());
    return tokens;
  };
  const std::vector<std::int32_t> tokens = run(true);
  EXPECT_GT(tokens.size(), 20u);
  EXPECT_EQ(tokens, run(false));
}

TEST(AsyncSpadeOptions, AWindowOutOfRangeIsASentence) {
  EXPECT_THROW(make_method("asyncspade:window=33"), InputError);
  EXPECT_THROW(make_method("asyncspade:window=0"), InputError);
  EXPECT_THROW(make_method("asyncspade:pack=5"), InputError);
}

}  // namespace
}  // namespace tandem::testing
