// Sessions of AsyncSpade: prompts behind prompts, and decodes that go on.
#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>

#include "engine/runtime/decode_session.h"
#include "tests/methods/slow_spade.h"

namespace tandem::testing {
namespace {

using Vector = SlowModel::Vector;

// Over decode, a new prompt and decode: what the rank chose of the first part, of the prompt, and of both.
class AsyncSpadeSession : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Places, AsyncSpadeSession, ::testing::Values("stream", "host"));

TEST_P(AsyncSpadeSession, EqualsTheSlowModelBehindANewPrompt) {
  for (const std::uint32_t turn_tokens : {3u, 33u}) {  // fewer and more than a window
    Bench bench(tiny_model(true, 3), with_peer());
    const std::vector<std::int32_t> prompt = random_prompt(150, 8), turn = random_prompt(turn_tokens, 9);
    const auto method = make_method(std::string("asyncspade:budget=64,window=6,rope=post,place=") + GetParam());
    const auto prefix = bench.engine.prefill(prompt);
    const DecodeRequest request{prefix.get(), 20};
    const auto session = bench.engine.open_session(*method, {&request, 1});
    std::vector<std::vector<float>> logits, more_logits;
    const std::vector<std::int32_t> said = session->decode({.logits = &logits}).sequences[0].tokens;
    session->append(0, turn, 20);
    const std::vector<std::int32_t> more = session->decode({.logits = &more_logits}).sequences[0].tokens;
    bench.engine.release(*prefix);
    logits.insert(logits.end(), more_logits.begin(), more_logits.end());

    std::vector<std::int32_t> fed = prompt;
    for (const auto& part : {said, turn, more}) fed.insert(fed.end(), part.begin(), part.end());
    const std::size_t first = prompt.size() - 1, second = prompt.size() + said.size() + turn.size() - 1;
    PredictionRule rule;
    rule.weights = LagWeights::eq2;
    rule.window = 6;
    SlowSpade slow(bench.model, rule, 64, 0);
    std::size_t step = 0;
    for (std::size_t t = 0; step < logits.size(); ++t) {
      const bool decodes = (t >= first && t < first + said.size()) || t >= second;
      const Vector expected = slow.step(fed[t], decodes);
      if (!decodes) continue;
      double worst = 0;
      for (std::size_t i = 0; i < expected.size(); ++i)
        worst = std::max(worst, std::abs(expected[i] - double(logits[step][i])));
      ASSERT_LT(worst, 3e-4) << "step " << step << " with a turn of " << turn_tokens;
      ++step;
    }
    EXPECT_GT(slow.closest, 1e-7) << "float and double may choose differently here: take another prompt";
  }
}

TEST(AsyncSpadeSessions, TwoHalvesOnThePeerAreTheWhole) {
  std::vector<std::vector<float>> whole, halves;
  for (const std::uint32_t part : {40u, 20u}) {
    Bench bench(tiny_model(true, 3), with_peer());
    const auto method = make_method("asyncspade:budget=64,window=6,pack=2,place=peer");
    std::vector<std::unique_ptr<Prefix>> prefixes;
    std::vector<DecodeRequest> requests;
    for (const std::size_t i : {0, 2}) {
      prefixes.push_back(bench.engine.prefill(kRagged[i]));
      requests.push_back({prefixes.back().get(), part});
    }
    const auto session = bench.engine.open_session(*method, requests);
    for (const auto& prefix : prefixes) bench.engine.release(*prefix);
    for (std::uint32_t done = 0; done < 40; done += part) {
      std::vector<std::vector<float>> logits;
      session->decode({.logits = &logits});
      std::vector<std::vector<float>>& all = part == 40 ? whole : halves;
      all.insert(all.end(), logits.begin(), logits.end());
    }
  }
  EXPECT_EQ(halves, whole);
}

// Over decode, a new prompt and decode: the rank chooses from the new prompt too.
TEST(AsyncSpadeSessions, StreamAndHostChooseTheSameBehindANewPrompt) {
  std::vector<std::vector<float>> all[2], dense;
  for (int which = 0; which < 3; ++which) {
    Bench bench(tiny_model());
    const auto method = make_method(which == 0   ? "asyncspade:budget=64,window=6"
                                    : which == 1 ? "asyncspade:budget=64,window=6,place=host"
                                                 : "full");
    const auto prefix = bench.engine.prefill(kRagged[0]);
    const DecodeRequest request{prefix.get(), 20};
    const auto session = bench.engine.open_session(*method, {&request, 1});
    session->decode({});
    session->append(0, random_prompt(33, 9), 30);
    session->decode({.logits = which < 2 ? &all[which] : &dense});
    bench.engine.release(*prefix);
  }
  ASSERT_EQ(all[0].size(), 30u);
  double places = 0, left_out = 0;
  for (std::size_t n = 0; n < all[0].size(); ++n) {
    for (std::size_t i = 0; i < all[0][n].size(); ++i) {
      places = std::max(places, std::abs(double(all[0][n][i]) - all[1][n][i]));
      left_out = std::max(left_out, std::abs(double(all[0][n][i]) - dense[n][i]));
    }
  }
  EXPECT_LT(places, 1e-4);  // the new prompt is attended in another order where KV is on the host
  EXPECT_GT(left_out, 0.1) << "a budget that leaves nothing out tests nothing";
}

TEST(AsyncSpadeSessions, WithRoomForAllANewPromptIsAttendedExactly) {
  std::vector<std::vector<float>> expected;
  for (const std::string place : {"stream", "host"}) {
    Bench bench(tiny_model());
    const auto method = make_method("asyncspade:budget=4K,window=6,place=" + place), full = make_method("full");
    std::vector<std::vector<float>> logits[2];
    for (int which = 0; which < 2; ++which) {
      const auto prefix = bench.engine.prefill(kRagged[0]);
      const DecodeRequest request{prefix.get(), 20};
      const auto session = bench.engine.open_session(which == 0 ? *method : *full, {&request, 1});
      session->decode({});
      session->append(0, random_prompt(33, 9), 30);
      session->decode({.logits = &logits[which]});
      bench.engine.release(*prefix);
    }
    ASSERT_EQ(logits[0].size(), logits[1].size());
    for (std::size_t n = 0; n < logits[0].size(); ++n) {  // everything fits the budget: lossless
      for (std::size_t i = 0; i < logits[0][n].size(); ++i) ASSERT_NEAR(logits[0][n][i], logits[1][n][i], 1e-4f);
    }
  }
}

}  // namespace
}  // namespace tandem::testing
