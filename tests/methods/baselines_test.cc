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

struct Rule {
  double budget;
  std::uint32_t block, sinks, window;
  bool union_attended;
};

/// Sinks, window and new tokens, and of the region between them each head's best blocks.
void expect_fixed_budget(const std::string& method, const Rule& rule) {
  const std::uint32_t prompt = 501;  // 500 prefilled; not a multiple of a page
  const std::uint32_t begin = (rule.sinks + 15) / 16 * 16, end = (500 - rule.window) / 16 * 16;
  const std::uint32_t keep = std::uint32_t(std::ceil(rule.budget * (end - begin) / rule.block - 1e-9));
  expect_same_by_group(
      method + ":budget=" + std::to_string(rule.budget) + ",block=" + std::to_string(rule.block) +
          ",sinks=" + std::to_string(rule.sinks) + ",window=" + std::to_string(rule.window) +
          (rule.union_attended ? ",union=attended" : ""),
      [&](std::uint32_t, std::uint32_t head, const std::vector<Vector>& group, const std::vector<Vector>& keys) {
        std::vector<bool> seen(keys.size());
        for (std::size_t t = 0; t < keys.size(); ++t) seen[t] = t < begin || t >= end;
        for (std::uint32_t h = 0; h < group.size(); ++h) {
          if (h != head && !rule.union_attended) continue;
          std::vector<std::pair<double, std::uint32_t>> blocks;  // bound, first token
          for (std::uint32_t at = begin; at < end; at += rule.block) {
            blocks.emplace_back(
                upper_bound(group[h], {keys.begin() + at, keys.begin() + std::min(at + rule.block, end)}), at);
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

class FixedBudget : public ::testing::TestWithParam<Rule> {};
INSTANTIATE_TEST_SUITE_P(Rules, FixedBudget,
                         ::testing::Values(Rule{0.1, 16, 64, 256, false}, Rule{0.25, 32, 16, 40, false},
                                           Rule{0.02, 16, 0, 1, false}, Rule{0.4, 64, 32, 17, false},
                                           Rule{0.15, 128, 16, 100, false}, Rule{0.2, 32, 16, 100, true}));

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
};

class Quest : public ::testing::TestWithParam<QuestRule> {};
INSTANTIATE_TEST_SUITE_P(Rules, Quest,
                         ::testing::Values(QuestRule{"quest:budget=96", 96, 16, 0, 0, "max"},
                                           QuestRule{"quest:budget=100,page=32,sinks=40,group_reduce=mean", 100, 32, 40,
                                                     0, "mean"},
                                           QuestRule{"quest:budget=64,group_reduce=per_head", 64, 16, 0, 0, "per_head"},
                                           QuestRule{"quest:budget=16,dense_layers=1", 16, 16, 0, 1, "max"},
                                           QuestRule{"quest:budget=3", 3, 16, 16, 0, "max"}));

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
            const double bound = upper_bound(q, own);
            if (rule.reduce == "max") score[page] = std::max(score[page], bound);
            if (rule.reduce == "mean") score[page] += bound / double(group.size());
          }
          if (rule.reduce == "per_head") score[page] = upper_bound(group[head], own);
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

TEST(HybridFixed, CountsWhatItMovesAndAttends) {
  Bench bench(tiny_model());
  const auto method = make_method("hybrid-fixed:budget=0.1,block=16,sinks=64,window=256");
  const DecodeResult result = bench.decode(*method, {random_prompt(1025, 4)}, 4);  // 1,024 prefilled
  const KvShape& shape = bench.engine.kv().shape();
  const std::uint64_t host_tokens = 1024 - 256 - 64;  // 704 = 44 blocks, 5 per head
  const DecodedSequence& sequence = result.sequences[0];
  std::uint64_t offloaded = 0, queries = 0, partials = 0;
  for (const TraceRecord& r : result.trace.records) {
    const std::string name = r.name;
    if (name == "offload kv") offloaded += r.cost.d2h;
    if (name == "query to host") queries += r.cost.d2h;
    if (name == "host partials to device") partials += r.cost.h2d;
  }
  EXPECT_EQ(offloaded, host_tokens * shape.token_bytes());
  EXPECT_EQ(queries, 4u * 2 * 4 * 16 * 4);         // steps x layers x heads x D x f32
  EXPECT_EQ(partials, 4u * 2 * (4 * 16 + 4) * 4);  // the same and one lse per head
  // The device sees sinks, window and the tokens decoded so far; a KV head's group sees 5 to 10 blocks on the host.
  EXPECT_EQ(sequence.attended[0], 4u * 320 + 1 + 2 + 3 + 4);
  EXPECT_GE(sequence.attended[1], 4u * 5 * 16);
  EXPECT_LE(sequence.attended[1], 4u * 10 * 16);
  EXPECT_EQ(sequence.peak_kv_bytes[0], (320 + 16) * shape.token_bytes());
  const std::uint64_t digests = 2 * 2 * 2 * 44 * 16 * 4, selection = 4 * 45 * 4;  // layers, heads, min and max
  EXPECT_EQ(sequence.peak_kv_bytes[1], host_tokens * shape.token_bytes() + digests + selection);
}

TEST(Quest, CountsWhatItReads) {
  Bench bench(tiny_model());
  const auto method = make_method("quest:budget=64");
  const DecodeResult result = bench.decode(*method, {random_prompt(101, 4)}, 16);  // 100 prefilled
  const KvShape& shape = bench.engine.kv().shape();
  std::uint64_t read = 0, chosen_by = 0, digested = 0, expected_read = 0, expected_choice = 0;
  for (const TraceRecord& r : result.trace.records) {
    const std::string name = r.name;
    if (name == "device attention") read += r.cost.hbm;
    if (name == "select blocks") chosen_by += r.cost.hbm;
    if (name == "build digests") digested += r.cost.hbm;
  }
  std::uint64_t attended = 0;
  for (std::uint32_t tokens = 101; tokens <= 116; ++tokens) {
    const std::uint64_t newest = (tokens - 1) % 16 + 1, others = (tokens - 1) / 16;  // 6, then 7 pages with a digest
    attended += newest + 3 * 16;
    expected_read += (newest + 3 * 16) * shape.token_bytes() + 2 * 2 * 4 * 16 * 4;
    // Two layers: min and max of 2 heads, scores of 4 heads written and read, 2 lists of 3, the query.
    expected_choice += 2 * (2 * 2 * others * 64 + 2 * 4 * others * 4 + 2 * 4 * 4 + 4 * 16 * 4);
  }
  EXPECT_EQ(read, expected_read);
  EXPECT_EQ(chosen_by, expected_choice);
  // Keys of 7 pages in 2 layers and heads, and 2 vectors each.
  EXPECT_EQ(digested, 7u * 2 * 2 * (16 + 2) * 64);
  EXPECT_EQ(result.sequences[0].attended[0], attended);
  EXPECT_EQ(result.sequences[0].attended[1], 0u);
  // 8 pages; room for 116 / 16 digests; a list per query head.
  EXPECT_EQ(result.sequences[0].peak_kv_bytes[0], 8 * 16 * shape.token_bytes() + 2 * 2 * 2 * 7 * 64 + 4 * 8 * 4);
  EXPECT_EQ(result.sequences[0].peak_kv_bytes[1], 0u);
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

TEST(H2oCounters, CountWhatItKeepsAndReads) {
  Bench bench(tiny_model());
  const DecodeResult result = bench.decode(*make_method("h2o:budget=40"), {random_prompt(101, 4)}, 16);
  const KvShape& shape = bench.engine.kv().shape();
  std::uint64_t read = 0, kept = 0, updated = 0;
  for (const TraceRecord& r : result.trace.records) {
    const std::string name = r.name;
    if (name == "device attention") read += r.cost.hbm;
    if (name == "keep heavy hitters") kept += r.cost.hbm;
    if (name == "update heavy hitters") updated += r.cost.hbm;
  }
  const std::uint64_t token = 2 * 64 + 8;  // K, V, mass and position of a KV head
  EXPECT_EQ(result.sequences[0].attended[0], 16u * 41);
  EXPECT_EQ(read, 16 * (41 * shape.token_bytes() + 2 * (2 * 4 * 16 * 4 + 4 * 41 * 4)));
  EXPECT_EQ(kept, 2u * 2 * (100 * 4 + 2 * 40 * token));
  EXPECT_EQ(updated, 16u * 2 * (4 * 41 * 4 + 2 * (3 * 40 * 4 + 2 * token)));
  EXPECT_EQ(result.sequences[0].peak_kv_bytes[0], 16 * shape.token_bytes() + 2 * 2 * 40 * token);
  EXPECT_EQ(result.sequences[0].peak_kv_bytes[1], 0u);
}

TEST(H2oCounters, AnEngineThatKeepsNoColumnSumsSaysSo) {
  const Model model = tiny_model();
  const auto device = sim();
  ThreadPool pool(1);
  EngineOptions options;
  options.kv.device_bytes = options.kv.host_bytes = std::size_t{1} << 20;
  Engine engine(model, *device, pool, options);
  const auto prefix = engine.prefill(random_prompt(20, 1));
  const DecodeRequest request{prefix.get(), 2};
  const auto method = make_method("h2o");
  EXPECT_THROW(engine.decode(*method, {&request, 1}), InputError);
}

TEST(GpuFetch, CountsWhatItFetches) {
  Bench bench(tiny_model());
  const auto method = make_method("gpu-fetch:budget=0.1,block=32,sinks=64,window=256");
  const DecodeResult result = bench.decode(*method, {random_prompt(1025, 4)}, 4);  // 1,024 prefilled
  const KvShape& shape = bench.engine.kv().shape();
  const DecodedSequence& sequence = result.sequences[0];
  std::uint64_t fetched = 0, pieces = 0, digested = 0, to_host = 0;
  for (const TraceRecord& r : result.trace.records) {
    const std::string name = r.name;
    if (name == "fetch kv") {
      fetched += r.cost.h2d;
      pieces += r.cost.pieces;
      EXPECT_EQ(r.cause, Cause::recall);
    }
    if (name == "build digests") digested += r.cost.hbm;
    if (name == "offload kv") to_host += r.cost.d2h;
    EXPECT_NE(std::string(r.name), "host attention");
  }
  const std::uint64_t region = 704, blocks = 22, near = 4 * 320 + 1 + 2 + 3 + 4;  // 3 blocks per query head
  EXPECT_EQ(to_host, region * shape.token_bytes());
  EXPECT_EQ(digested, (region + 2 * blocks) * 2 * 2 * 64);  // keys of 2 layers and heads, min and max
  // The device attends to what is near and to what was fetched; K and V of a block are a piece each.
  EXPECT_GT(fetched, 0u);
  EXPECT_EQ(fetched / pieces, 32u * 64);
  EXPECT_EQ(fetched % (32 * 2 * 64), 0u);
  const std::uint64_t chosen = fetched / (2 * 64);  // tokens, summed over 2 layers, 2 KV heads and 4 steps
  EXPECT_GE(chosen, 4u * 2 * 2 * 3 * 32);
  EXPECT_LE(chosen, 4u * 2 * 2 * 6 * 32);
  EXPECT_LE(sequence.attended[0], near + chosen / 4);  // each step's mean rounds down
  EXPECT_GT(sequence.attended[0] + 4, near + chosen / 4);
  EXPECT_EQ(sequence.attended[1], 0u);
  // Near pages and the new one, digests, a list per query head, room for both heads of a group choosing others.
  EXPECT_EQ(sequence.peak_kv_bytes[0],
            (320 + 16) * shape.token_bytes() + 2 * 2 * 2 * blocks * 64 + 4 * 23 * 4 + 6 * 32 * shape.token_bytes() / 2);
  EXPECT_EQ(sequence.peak_kv_bytes[1], region * shape.token_bytes());
}

TEST(FullOffload, StreamsAllWholePagesInEveryStep) {
  Bench bench(tiny_model());
  const auto method = make_method("full-offload");
  const DecodeResult result = bench.decode(*method, {random_prompt(101, 4)}, 16);  // 100 prefilled
  const KvShape& shape = bench.engine.kv().shape();
  std::uint64_t fetched = 0, to_host = 0, read = 0, expected_fetched = 0, attended = 0;
  for (const TraceRecord& r : result.trace.records) {
    const std::string name = r.name;
    if (name == "fetch kv") fetched += r.cost.h2d;
    if (name == "offload kv") to_host += r.cost.d2h;
    if (name == "device attention") read += r.cost.hbm;
  }
  for (std::uint32_t tokens = 101; tokens <= 116; ++tokens) {
    expected_fetched += (tokens - 1) / 16 * 16 * shape.token_bytes();
    attended += tokens;
  }
  EXPECT_EQ(fetched, expected_fetched);
  EXPECT_EQ(to_host, 112 * shape.token_bytes());
  EXPECT_EQ(read, attended * shape.token_bytes() + 16 * 2 * 2 * 4 * 16 * 4);
  EXPECT_EQ(result.sequences[0].attended[0], attended);
  // The page being filled, and one layer's whole pages twice.
  EXPECT_EQ(result.sequences[0].peak_kv_bytes[0], 16 * shape.token_bytes() + 2 * 112 * shape.token_bytes() / 2);
  EXPECT_EQ(result.sequences[0].peak_kv_bytes[1], 112 * shape.token_bytes());
}

TEST(FullOffload, LooksAheadOneLayer) {
  // The copy of layer i + 1 runs while layer i computes: it starts before that attention and not before the last reader
  // of its room, the attention of layer i - 1, is done.
  Bench bench(tiny_model(true, 4));
  const DecodeResult ahead = bench.decode(*make_method("full-offload"), {random_prompt(2401, 4)}, 2);
  std::map<std::string, std::vector<const TraceRecord*>> by_name;
  for (const TraceRecord& r : ahead.trace.records) by_name[r.name].push_back(&r);
  const auto& fetch = by_name["fetch kv"];
  const auto& attention = by_name["device attention"];
  ASSERT_EQ(fetch.size(), 8u);
  ASSERT_EQ(attention.size(), 8u);
  for (std::size_t step = 0; step < 2; ++step) {
    for (std::size_t layer = 1; layer < 4; ++layer) {
      const std::size_t i = 4 * step + layer;
      EXPECT_LE(fetch[i]->start, attention[i - 1]->start) << "while the layer before waits for its own or computes";
      EXPECT_GE(attention[i]->start, fetch[i]->end);
      if (layer >= 2) {
        EXPECT_GE(fetch[i]->start, attention[i - 2]->end);
      }
    }
  }
  const DecodeResult without = bench.decode(*make_method("full-offload:look_ahead=0"), {random_prompt(2401, 4)}, 2);
  EXPECT_EQ(without.sequences[0].tokens, ahead.sequences[0].tokens);
  EXPECT_GT(without.idle.decode.window, ahead.idle.decode.window);
}

TEST(FullHost, AttendsToEverythingOnTheCpu) {
  Bench bench(tiny_model());
  const DecodeResult result = bench.decode(*make_method("full-host"), {random_prompt(101, 4)}, 16);  // 100 prefilled
  const KvShape& shape = bench.engine.kv().shape();
  std::uint64_t to_host = 0, attended = 0;
  for (const TraceRecord& r : result.trace.records) {
    if (std::string(r.name) == "offload kv") to_host += r.cost.d2h;
    EXPECT_NE(std::string(r.name), "device attention");
  }
  for (std::uint32_t tokens = 101; tokens <= 116; ++tokens) attended += tokens;
  EXPECT_EQ(to_host, 116 * shape.token_bytes());  // the prompt, then one token a step
  EXPECT_EQ(result.sequences[0].attended[0], 0u);
  EXPECT_EQ(result.sequences[0].attended[1], attended);
  EXPECT_EQ(result.sequences[0].peak_kv_bytes[0], 16 * shape.token_bytes());
  EXPECT_EQ(result.sequences[0].peak_kv_bytes[1], 8 * 16 * shape.token_bytes());
}

TEST(Full, ReadsEveryTokenOfEveryLayerOnce) {
  Bench bench(tiny_model());
  const auto method = make_method("full");
  const DecodeResult result = bench.decode(*method, {random_prompt(101, 4)}, 3);
  std::uint64_t read = 0;
  for (const TraceRecord& r : result.trace.records) {
    if (std::string(r.name) == "device attention") read += r.cost.hbm;
  }
  const std::uint64_t q_and_o = 2 * 4 * 16 * 4;
  EXPECT_EQ(read, (101u + 102 + 103) * bench.engine.kv().shape().token_bytes() + 3 * 2 * q_and_o);
  EXPECT_EQ(result.sequences[0].attended[0], 101u + 102 + 103);
  EXPECT_EQ(result.sequences[0].attended[1], 0u);
}

}  // namespace
}  // namespace tandem::testing
