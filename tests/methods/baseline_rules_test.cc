// The baselines against an independent model of their rules in double precision.
#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <map>
#include <numeric>

#include "engine/common/error.h"
#include "engine/runtime/decode_session.h"
#include "methods/registry.h"
#include "tests/engine/runtime/slow_model.h"
#include "tests/engine/runtime/tiny.h"

namespace tandem::testing {
namespace {

using Vector = SlowModel::Vector;

/// The tokens that query head `head` of a group attends, by the queries of its whole group.
using GroupRule = std::function<std::vector<bool>(std::uint32_t layer, std::uint32_t head,
                                                  const std::vector<Vector>& group, const std::vector<Vector>& keys)>;

double upper_bound(const Vector& q, const std::vector<Vector>& keys) {
  double bound = 0;
  for (std::size_t d = 0; d < q.size(); ++d) {
    double best = -INFINITY;
    for (const Vector& k : keys) best = std::max(best, q[d] * k[d]);
    bound += best;
  }
  return bound;
}

double with_mean(const Vector& q, const std::vector<Vector>& keys) {
  double sum = 0;
  for (const Vector& k : keys) sum += std::inner_product(q.begin(), q.end(), k.begin(), 0.0);
  return sum / double(keys.size());
}

/// Decodes `steps` tokens with the engine, feeds the same tokens to the slow model under a rule (used for decode steps
/// only; the prefill is dense), and compares the logits.
void expect_same_by_group(const std::string& spec, const GroupRule& rule, std::uint32_t prompt_tokens,
                          std::uint32_t steps) {
  Bench bench(tiny_model());
  const auto method = make_method(spec);
  const std::vector<std::int32_t> prompt = random_prompt(prompt_tokens, 21);
  std::vector<std::vector<float>> logits;
  const DecodeResult result = bench.decode(*method, {prompt}, steps, {.logits = &logits});
  SlowModel slow(bench.model);
  for (std::size_t t = 0; t + 1 < prompt.size(); ++t) slow.step(prompt[t]);
  const ModelConfig& c = bench.model.config;
  const std::uint32_t size = c.q_heads / c.kv_heads;
  std::vector<Vector> queries(c.q_heads);  // of the layer that is being computed
  const SlowModel::Look look = [&](std::uint32_t, const Vector&, const Vector& q, const auto&, const auto&) {
    for (std::uint32_t h = 0; h < c.q_heads; ++h)
      queries[h].assign(q.begin() + h * c.head_dim, q.begin() + (h + 1) * c.head_dim);
  };
  const SlowModel::Visible visible = [&](std::uint32_t layer, std::uint32_t h, const Vector&,
                                         const std::vector<Vector>& keys) {
    const std::uint32_t first = h / size * size;
    return rule(layer, h - first, {queries.begin() + first, queries.begin() + first + size}, keys);
  };
  for (std::size_t n = 0; n < logits.size(); ++n) {
    const Vector expected = slow.step(n == 0 ? prompt.back() : result.sequences[0].tokens[n - 1], visible, look);
    double worst = 0;
    for (std::size_t i = 0; i < expected.size(); ++i)
      worst = std::max(worst, std::abs(expected[i] - double(logits[n][i])));
    EXPECT_LT(worst, 3e-4) << spec << " step " << n;
  }
}

/// The same for a rule that looks at one head's query alone.
void expect_same(const std::string& spec, const SlowModel::Visible& visible, std::uint32_t prompt_tokens,
                 std::uint32_t steps) {
  expect_same_by_group(
      spec,
      [&](std::uint32_t layer, std::uint32_t head, const std::vector<Vector>& group, const std::vector<Vector>& keys) {
        return visible(layer, head, group[head], keys);
      },
      prompt_tokens, steps);
}

TEST(Streaming, AttendsSinksAndTheNewestTokens) {
  expect_same(
      "streaming:sinks=10,window=50",
      [](std::uint32_t, std::uint32_t, const Vector&, const std::vector<Vector>& keys) {
        std::vector<bool> seen(keys.size());
        for (std::size_t t = 0; t < keys.size(); ++t) seen[t] = t < 10 || t + 50 >= keys.size();
        return seen;
      },
      200, 40);
}

struct BudgetRule {
  double budget;
  std::uint32_t block, sinks, window;
  bool union_attended, mean = false;
};

/// Sinks, window and new tokens, and of the region between them each head's best blocks.
void expect_fixed_budget(const std::string& method, const BudgetRule& rule) {
  const std::uint32_t prompt = 501;  // 500 prefilled; not a multiple of a page
  const std::uint32_t begin = (rule.sinks + 15) / 16 * 16, end = (500 - rule.window) / 16 * 16;
  const std::uint32_t keep = std::uint32_t(std::ceil(rule.budget * (end - begin) / rule.block - 1e-9));
  expect_same_by_group(
      method + ":budget=" + std::to_string(rule.budget) + ",block=" + std::to_string(rule.block) +
          ",sinks=" + std::to_string(rule.sinks) + ",window=" + std::to_string(rule.window) +
          (rule.union_attended ? ",union=attended" : "") + (rule.mean ? ",digest=mean" : ""),
      [&](std::uint32_t, std::uint32_t head, const std::vector<Vector>& group, const std::vector<Vector>& keys) {
        std::vector<bool> seen(keys.size());
        for (std::size_t t = 0; t < keys.size(); ++t) seen[t] = t < begin || t >= end;
        for (std::uint32_t h = 0; h < group.size(); ++h) {
          if (h != head && !rule.union_attended) continue;
          std::vector<std::pair<double, std::uint32_t>> blocks;  // bound, first token
          for (std::uint32_t at = begin; at < end; at += rule.block) {
            const std::vector<Vector> own(keys.begin() + at, keys.begin() + std::min(at + rule.block, end));
            blocks.emplace_back(rule.mean ? with_mean(group[h], own) : upper_bound(group[h], own), at);
          }
          std::stable_sort(blocks.begin(), blocks.end(),
                           [](const auto& a, const auto& b) { return a.first > b.first; });
          for (std::uint32_t i = 0; i < std::min<std::size_t>(keep, blocks.size()); ++i) {
            for (std::uint32_t t = blocks[i].second; t < std::min(blocks[i].second + rule.block, end); ++t)
              seen[t] = true;
          }
        }
        return seen;
      },
      prompt, 12);
}

class FixedBudget : public ::testing::TestWithParam<BudgetRule> {};
INSTANTIATE_TEST_SUITE_P(Rules, FixedBudget,
                         ::testing::Values(BudgetRule{0.1, 16, 64, 256, false}, BudgetRule{0.25, 32, 16, 40, false},
                                           BudgetRule{0.02, 16, 0, 1, false}, BudgetRule{0.4, 64, 32, 17, false},
                                           BudgetRule{0.15, 128, 16, 100, false}, BudgetRule{0.2, 32, 16, 100, true},
                                           BudgetRule{0.2, 16, 16, 100, false, true},
                                           BudgetRule{0.3, 64, 32, 17, true, true}));

TEST_P(FixedBudget, EachHeadAttendsItsBestBlocksOnTheHost) {
  expect_fixed_budget("hybrid-fixed", GetParam());
}
TEST_P(FixedBudget, EachHeadAttendsItsBestBlocksOnTheDevice) {
  expect_fixed_budget("gpu-fetch", GetParam());
}

struct QuestRule {
  std::string spec;
  std::uint32_t budget, page, sinks, dense_layers;
  std::string reduce;
  bool mean = false;
};

class Quest : public ::testing::TestWithParam<QuestRule> {};
INSTANTIATE_TEST_SUITE_P(Rules, Quest,
                         ::testing::Values(QuestRule{"quest:budget=96", 96, 16, 0, 0, "max"},
                                           QuestRule{"quest:budget=100,page=32,sinks=40,group_reduce=mean", 100, 32, 40,
                                                     0, "mean"},
                                           QuestRule{"quest:budget=64,group_reduce=per_head", 64, 16, 0, 0, "per_head"},
                                           QuestRule{"quest:budget=16,dense_layers=1", 16, 16, 0, 1, "max"},
                                           QuestRule{"quest:budget=3", 3, 16, 16, 0, "max"},
                                           QuestRule{"quest:budget=96,digest=mean", 96, 16, 0, 0, "max", true},
                                           QuestRule{"quest:budget=128,page=32,group_reduce=per_head,digest=mean", 128,
                                                     32, 0, 0, "per_head", true}));

TEST_P(Quest, AttendsTheNewestPageAndTheBestOthers) {
  const QuestRule rule = GetParam();
  const std::uint32_t keep = (rule.budget + rule.page - 1) / rule.page - 1,
                      first = (rule.sinks + rule.page - 1) / rule.page;
  expect_same_by_group(
      rule.spec,
      [&](std::uint32_t layer, std::uint32_t head, const std::vector<Vector>& group, const std::vector<Vector>& keys) {
        const std::size_t newest = (keys.size() - 1) / rule.page;  // page of the step's own token
        std::vector<double> score(newest);
        for (std::size_t page = 0; page < newest; ++page) {
          const std::vector<Vector> own(keys.begin() + page * rule.page, keys.begin() + (page + 1) * rule.page);
          score[page] = rule.reduce == "max" ? -INFINITY : 0;
          for (const Vector& q : group) {
            const double bound = rule.mean ? with_mean(q, own) : upper_bound(q, own);
            if (rule.reduce == "max") score[page] = std::max(score[page], bound);
            if (rule.reduce == "mean") score[page] += bound / double(group.size());
          }
          if (rule.reduce == "per_head")
            score[page] = rule.mean ? with_mean(group[head], own) : upper_bound(group[head], own);
          if (page < first) score[page] = INFINITY;
        }
        std::vector<std::size_t> order(newest);
        std::iota(order.begin(), order.end(), 0u);
        std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return score[a] > score[b]; });
        std::vector<bool> seen(keys.size(), layer < rule.dense_layers);
        const auto see = [&](std::size_t page) {
          for (std::size_t t = page * rule.page; t < std::min<std::size_t>((page + 1) * rule.page, keys.size()); ++t)
            seen[t] = true;
        };
        see(newest);
        for (std::size_t i = 0; i < std::min<std::size_t>(keep, newest); ++i) see(order[i]);
        return seen;
      },
      301, 40);
}

/// H2O's rule for one layer and KV head: which tokens are held, and the mass that each has gathered.
struct HeavyHitters {
  std::vector<std::size_t> held;  // positions, ascending
  Vector mass;                    // of every token so far

  /// The queries of one token over what is held.
  void gather(const std::vector<Vector>& group, const std::vector<Vector>& keys) {
    mass.resize(keys.size());
    for (const Vector& q : group) {
      Vector score;
      double sum = 0;
      for (const std::size_t t : held) {
        double dot = 0;
        for (std::size_t d = 0; d < q.size(); ++d) dot += q[d] * keys[t][d];
        score.push_back(std::exp(dot / std::sqrt(double(q.size()))));
        sum += score.back();
      }
      for (std::size_t i = 0; i < held.size(); ++i) mass[held[i]] += score[i] / sum;
    }
  }
  /// Down to so many of `tokens`: those of the window stay, of the others the lightest goes first.
  void evict(std::size_t tokens, std::size_t heavy, std::size_t window) {
    while (held.size() > heavy + window) {
      std::size_t worst = 0;
      for (std::size_t i = 1; i < held.size() && held[i] + window < tokens; ++i) {
        if (mass[held[i]] <= mass[held[worst]]) worst = i;
      }
      held.erase(held.begin() + std::ptrdiff_t(worst));
    }
  }
};

class H2o : public ::testing::TestWithParam<std::pair<std::uint32_t, std::uint32_t>> {};  // heavy, window
INSTANTIATE_TEST_SUITE_P(Sizes, H2o,
                         ::testing::Values(std::pair{32u, 32u}, std::pair{5u, 35u}, std::pair{39u, 1u},
                                           std::pair{0u, 40u}, std::pair{150u, 150u}));

TEST_P(H2o, KeepsTheHeavyHittersAndTheWindow) {
  const std::uint32_t heavy = GetParam().first, window = GetParam().second;
  const std::vector<std::int32_t> prompt = random_prompt(251, 21), turn = random_prompt(30, 22);
  EngineOptions engine;
  engine.prefill_chunk = 64;
  Bench bench(tiny_model(), sim(), engine);
  const auto method = make_method("h2o:budget=" + std::to_string(heavy + window) +
                                  ",heavy=" + std::to_string(double(heavy) / (heavy + window)));
  const auto prefix = bench.engine.prefill(prompt);
  const DecodeRequest request{prefix.get(), 40};
  const auto session = bench.engine.open_session(*method, {&request, 1});
  std::vector<std::vector<float>> logits, more_logits;
  const std::vector<std::int32_t> said = session->decode({.logits = &logits}).sequences[0].tokens;
  session->append(0, turn, 20);  // attends to what is held; then the turn's tokens compete for the same places
  const std::vector<std::int32_t> more = session->decode({.logits = &more_logits}).sequences[0].tokens;
  logits.insert(logits.end(), more_logits.begin(), more_logits.end());

  SlowModel slow(bench.model);
  const ModelConfig& c = bench.model.config;
  const std::uint32_t size = c.q_heads / c.kv_heads;
  std::vector<HeavyHitters> heads(std::size_t{c.layers} * c.kv_heads);
  std::vector<std::vector<bool>> visible(heads.size());
  bool evicts = false;  // in decode steps, and after the last token of a prompt
  const SlowModel::Look look = [&](std::uint32_t layer, const Vector&, const Vector& q, const auto& keys, const auto&) {
    for (std::uint32_t g = 0; g < c.kv_heads; ++g) {
      HeavyHitters& head = heads[std::size_t{layer} * c.kv_heads + g];
      std::vector<Vector> group;
      for (std::uint32_t h = g * size; h < (g + 1) * size; ++h)
        group.emplace_back(q.begin() + h * c.head_dim, q.begin() + (h + 1) * c.head_dim);
      const std::size_t tokens = keys[g].size();
      head.held.push_back(tokens - 1);
      head.gather(group, keys[g]);
      std::vector<bool>& seen = visible[std::size_t{layer} * c.kv_heads + g];
      seen.assign(tokens, false);
      for (const std::size_t t : head.held) seen[t] = true;
      if (evicts) head.evict(tokens, heavy, window);
    }
  };
  const SlowModel::Visible rule = [&](std::uint32_t layer, std::uint32_t h, const Vector&, const std::vector<Vector>&) {
    return visible[std::size_t{layer} * c.kv_heads + h / size];
  };
  std::vector<std::int32_t> fed = prompt;
  for (const auto& part : {said, turn, more}) fed.insert(fed.end(), part.begin(), part.end());
  const std::size_t first = prompt.size() - 1, second = prompt.size() + said.size() + turn.size() - 1;
  std::size_t step = 0;
  for (std::size_t t = 0; step < logits.size(); ++t) {
    const bool decodes = (t >= first && t < first + 40) || t >= second;
    evicts = decodes || t + 1 == first || t + 1 == second;
    const Vector expected = slow.step(fed[t], rule, look);
    if (!decodes) continue;
    double worst = 0;
    for (std::size_t i = 0; i < expected.size(); ++i)
      worst = std::max(worst, std::abs(expected[i] - double(logits[step][i])));
    EXPECT_LT(worst, 3e-4) << "step " << step;
    ++step;
  }
}

}  // namespace
}  // namespace tandem::testing
