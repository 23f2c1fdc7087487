// TOVA against an independent model of its rule in double precision, with and without eviction.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <gtest/gtest.h>
#include <numeric>

#include "engine/runtime/decode_session.h"
#include "methods/registry.h"
#include "tests/engine/runtime/slow_model.h"
#include "tests/engine/runtime/tiny.h"

namespace tandem::testing {
namespace {

using Vector = SlowModel::Vector;
using Keys = std::vector<std::vector<Vector>>;

double dot(const double* q, const Vector& k) {
  double sum = 0;
  for (std::size_t d = 0; d < k.size(); ++d) sum += q[d] * k[d];
  return sum;
}

double worst_difference(const Vector& expected, const std::vector<float>& actual) {
  double worst = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) worst = std::max(worst, std::abs(expected[i] - double(actual[i])));
  return worst;
}

class TovaBudget : public ::testing::TestWithParam<std::uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Tokens, TovaBudget, ::testing::Values(2u, 40u, 230u, 260u));

TEST_P(TovaBudget, AttendsItsOwnTokenAndTheBestOthersOfEachKvHead) {
  const std::uint32_t budget = GetParam();
  Bench bench(tiny_model());
  const std::vector<std::int32_t> prompt = random_prompt(221, 21);
  std::vector<std::vector<float>> logits;
  const DecodeResult result =
      bench.decode(*make_method("tova:budget=" + std::to_string(budget)), {prompt}, 40, {.logits = &logits});
  SlowModel slow(bench.model);
  for (std::size_t t = 0; t + 1 < prompt.size(); ++t) slow.step(prompt[t]);
  const ModelConfig& c = bench.model.config;
  const std::uint32_t size = c.q_heads / c.kv_heads;
  std::vector<std::vector<bool>> seen(c.kv_heads);
  double closest = INFINITY;  // of a chosen token's score to the best that was not chosen
  const SlowModel::Look look = [&](std::uint32_t, const Vector&, const Vector& q, const Keys& keys, const Keys&) {
    for (std::uint32_t g = 0; g < c.kv_heads; ++g) {
      const std::size_t others = keys[g].size() - 1, keep = std::min<std::size_t>(budget - 1, others);
      std::vector<double> score(others, -INFINITY);
      for (std::size_t t = 0; t < others; ++t) {
        for (std::uint32_t h = g * size; h < (g + 1) * size; ++h)
          score[t] = std::max(score[t], dot(q.data() + h * c.head_dim, keys[g][t]));
      }
      std::vector<std::size_t> order(others);
      std::iota(order.begin(), order.end(), 0u);
      std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return score[a] > score[b]; });
      if (keep > 0 && keep < others) closest = std::min(closest, score[order[keep - 1]] - score[order[keep]]);
      seen[g].assign(others + 1, false);
      seen[g][others] = true;
      for (std::size_t i = 0; i < keep; ++i) seen[g][order[i]] = true;
    }
  };
  const SlowModel::Visible visible = [&](std::uint32_t, std::uint32_t h, const Vector&, const std::vector<Vector>&) {
    return seen[h / size];
  };
  for (std::size_t n = 0; n < logits.size(); ++n) {
    const Vector expected = slow.step(n == 0 ? prompt.back() : result.sequences[0].tokens[n - 1], visible, look);
    EXPECT_LT(worst_difference(expected, logits[n]), 3e-4) << "step " << n;
  }
  EXPECT_GT(closest, 1e-6) << "float and double may choose differently here: take another prompt";
}

/// What a layer still holds.
struct Held {
  std::vector<std::size_t> tokens;
  Vector mass;  // by place in `tokens`: of the latest query, summed over all heads

  void weigh(const ModelConfig& c, const Vector& q, const Keys& keys) {
    mass.assign(tokens.size(), 0);
    for (std::uint32_t h = 0; h < c.q_heads; ++h) {
      Vector weights;
      double sum = 0;
      for (const std::size_t t : tokens) {
        weights.push_back(std::exp(dot(q.data() + h * c.head_dim, keys[h / (c.q_heads / c.kv_heads)][t]) /
                                   std::sqrt(double(c.head_dim))));
        sum += weights.back();
      }
      for (std::size_t i = 0; i < tokens.size(); ++i) mass[i] += weights[i] / sum;
    }
  }
  /// Down to `budget`; the newest token stays.
  void evict(std::size_t budget) {
    while (tokens.size() > budget) {
      std::size_t worst = 0;
      for (std::size_t i = 1; i + 1 < tokens.size(); ++i) {
        if (mass[i] <= mass[worst]) worst = i;
      }
      tokens.erase(tokens.begin() + std::ptrdiff_t(worst));
      mass.erase(mass.begin() + std::ptrdiff_t(worst));
    }
  }
};

/// The rule in double precision.
class SlowTova {
 public:
  explicit SlowTova(const Model& model)
      : c_(model.config), slow_(model), layers_(model.config.layers), seen_(model.config.layers) {}
  /// Logits behind `token`, after which each layer holds `budget` tokens at most.
  Vector step(std::int32_t token, std::size_t budget) {
    const SlowModel::Look look = [&](std::uint32_t layer, const Vector&, const Vector& q, const Keys& keys,
                                     const Keys&) {
      Held& held = layers_[layer];
      held.tokens.push_back(keys[0].size() - 1);
      seen_[layer].assign(keys[0].size(), false);
      for (const std::size_t t : held.tokens) seen_[layer][t] = true;
      if (budget == SIZE_MAX) return;
      held.weigh(c_, q, keys);
      held.evict(budget);
    };
    const SlowModel::Visible visible = [&](std::uint32_t layer, std::uint32_t, const Vector&,
                                           const std::vector<Vector>&) { return seen_[layer]; };
    return slow_.step(token, visible, look);
  }
  std::size_t held(std::uint32_t layer) const { return layers_[layer].tokens.size(); }

 private:
  const ModelConfig& c_;
  SlowModel slow_;
  std::vector<Held> layers_;
  std::vector<std::vector<bool>> seen_;
};

TEST(TovaEvicts, TheLightestTokenOfTheLatestQueryForGood) {
  constexpr std::size_t kBudget = 40;
  const std::vector<std::int32_t> prompt = random_prompt(181, 5), turn = random_prompt(30, 6);
  EngineOptions engine;
  engine.prefill_chunk = 64;
  Bench bench(tiny_model(), sim(), engine);
  const auto method = make_method("tova:evict=yes,budget=40");
  const auto prefix = bench.engine.prefill(prompt);
  const DecodeRequest request{prefix.get(), 30};
  const auto session = bench.engine.open_session(*method, {&request, 1});
  std::vector<std::vector<float>> logits, more_logits;
  const std::vector<std::int32_t> said = session->decode({.logits = &logits}).sequences[0].tokens;
  session->append(0, turn, 20);  // attends to what is held; then the turn's last query chooses
  const std::vector<std::int32_t> more = session->decode({.logits = &more_logits}).sequences[0].tokens;
  logits.insert(logits.end(), more_logits.begin(), more_logits.end());

  SlowTova slow(bench.model);
  std::vector<std::int32_t> fed = prompt;
  for (const auto& part : {said, turn, more}) fed.insert(fed.end(), part.begin(), part.end());
  const std::size_t first = prompt.size() - 1, second = prompt.size() + said.size() + turn.size() - 1;
  std::size_t step = 0;
  for (std::size_t t = 0; step < logits.size(); ++t) {
    const bool decodes = (t >= first && t < first + said.size()) || t >= second;
    // In decode steps, and after the last token of a prompt.
    const bool evicts = decodes || t + 1 == first || t + 1 == second;
    const Vector expected = slow.step(fed[t], evicts ? kBudget : SIZE_MAX);
    if (!decodes) continue;
    EXPECT_LT(worst_difference(expected, logits[step]), 3e-4) << "step " << step;
    ++step;
  }
}

/// How many tokens a layer keeps: in a session's first decode, in one that goes on without a new prompt, and behind
/// one.
struct Turns {
  const char* budget;
  std::uint32_t first, further, behind_a_prompt;
};
void PrintTo(const Turns& turns, std::ostream* out) {
  *out << turns.budget;
}
class TovaTurns : public ::testing::TestWithParam<Turns> {};
// Of 190, 220 and 290 tokens. Only a new prompt makes a share one of more tokens; a number of tokens that was cut down
// to the context grows with it, and so does the whole context.
INSTANTIATE_TEST_SUITE_P(Budgets, TovaTurns,
                         ::testing::Values(Turns{"0.25", 48, 48, 73}, Turns{"200", 190, 200, 200},
                                           Turns{"1", 190, 220, 290}, Turns{"60", 60, 60, 60}));

TEST_P(TovaTurns, AShareGrowsWithANewPromptAndATokenBudgetUpToItself) {
  constexpr std::uint32_t kHalf = 30;
  const Turns& turns = GetParam();
  const std::vector<std::int32_t> prompt = random_prompt(161, 5), turn = random_prompt(40, 6);
  Bench bench(tiny_model());
  const auto method = make_method(std::string("tova:evict=yes,budget=") + turns.budget);
  const auto prefix = bench.engine.prefill(prompt);
  const DecodeRequest request{prefix.get(), kHalf};
  const auto session = bench.engine.open_session(*method, {&request, 1});
  std::vector<std::vector<float>> logits;
  std::vector<std::int32_t> fed = prompt;
  for (int part = 0; part < 3; ++part) {
    if (part == 2) {
      session->append(0, turn, kHalf);
      fed.insert(fed.end(), turn.begin(), turn.end());
    }
    std::vector<std::vector<float>> own;
    const std::vector<std::int32_t> said = session->decode({.logits = &own}).sequences[0].tokens;
    ASSERT_EQ(said.size(), kHalf);
    fed.insert(fed.end(), said.begin(), said.end());
    logits.insert(logits.end(), own.begin(), own.end());
  }

  SlowTova slow(bench.model);
  const std::size_t first = prompt.size() - 1, again = prompt.size() + 2 * kHalf + turn.size() - 1;
  std::vector<std::size_t> held;  // at the end of each decode
  std::size_t step = 0;
  for (std::size_t t = 0; step < logits.size(); ++t) {
    const bool decodes = (t >= first && t < first + 2 * kHalf) || t >= again;
    // In decode steps, and after the last token of a prompt that is computed before them.
    const bool evicts = decodes || t + 1 == first || t + 1 == again;
    const std::size_t budget = t < first + kHalf       ? turns.first
                               : t < first + 2 * kHalf ? turns.further
                                                       : turns.behind_a_prompt;
    const Vector expected = slow.step(fed[t], evicts ? budget : SIZE_MAX);
    if (!decodes) continue;
    ASSERT_LT(worst_difference(expected, logits[step]), 3e-4) << "step " << step;
    ++step;
    if (step % kHalf == 0) held.push_back(slow.held(0));
  }
  EXPECT_EQ(held, (std::vector<std::size_t>{turns.first, turns.further, turns.behind_a_prompt}));
}

TEST(TovaCounters, CountWhatItReads) {
  Bench bench(tiny_model());
  const DecodeResult result = bench.decode(*make_method("tova:budget=40"), {random_prompt(101, 4)}, 16);
  std::uint64_t chosen = 0, scores = 0;
  for (const TraceRecord& r : result.trace.records) {
    if (std::string(r.name) != "choose tokens") continue;
    EXPECT_EQ(r.cause, Cause::selection);
    chosen += r.cost.hbm;
    scores += r.cost.flops;
  }
  // Steps score 100 .. 115 tokens: K of each, two KV heads' scores out and in, two lists of 39, the query.
  const std::uint64_t tokens = 16 * (100 + 115) / 2;
  EXPECT_EQ(chosen, 2 * (tokens * (2 * 64 + 2 * 4 * 2) + 16 * (2 * 40 * 4 + 4 * 16 * 4)));
  EXPECT_EQ(scores, 2 * tokens * 2 * 4 * 16);
  EXPECT_EQ(result.sequences[0].attended[0], 16u * 40);
}

}  // namespace
}  // namespace tandem::testing
