// InfiniGen against an independent model of its rule in double precision: the skewing, the speculated query's scores on
// the first columns, how many tokens are fetched and which, and the first layers that attend to everything; also after
// a new prompt, which is indexed by the old skewing.
#include <algorithm>
#include <cmath>
#include <functional>
#include <gtest/gtest.h>
#include <map>
#include <string>

#include "engine/mechanisms/partial_key_index/kernels/skewed.h"
#include "engine/runtime/decode_session.h"
#include "methods/registry.h"
#include "tests/engine/runtime/slow_model.h"
#include "tests/engine/runtime/tiny.h"

namespace tandem::testing {
namespace {

using Vector = SlowModel::Vector;
using Keys = std::vector<std::vector<Vector>>;

struct InfinigenRule {
  std::uint32_t prompt, budget;
  double partial, alpha;
  std::uint32_t unit;
  std::uint32_t dense = 0;  // layers that attend to everything
  const char* scope = "kv_head";
};

void PrintTo(const InfinigenRule& rule, std::ostream* out) {
  *out << rule.prompt << " tokens, budget " << rule.budget << ", partial " << rule.partial << ", unit " << rule.unit
       << ", " << rule.dense << " dense, scope " << rule.scope;
}

class SlowInfinigen {
 public:
  SlowInfinigen(const Model& model, const InfinigenRule& rule)
      : model_(model), rule_(rule), c_(model.config), slow_(model) {
    columns_ = std::uint32_t(std::ceil(rule.partial * c_.head_dim));
    queries_.resize(c_.layers);
    skew_.assign(c_.layers, std::vector<Vector>(c_.kv_heads));
    keys_.assign(c_.layers, Keys(c_.kv_heads));
  }

  void prefill(std::int32_t token) {
    slow_.step(token, {}, [&](std::uint32_t layer, const Vector&, const Vector& q, const Keys& keys, const Keys&) {
      queries_[layer].push_back(q);
      keys_[layer] = keys;
    });
    ++tokens_;
  }
  /// Directions of the prompt's keys and its last 64 queries, row by row.
  void skew() {
    const std::uint32_t n = c_.head_dim;
    for (std::uint32_t layer = 0; layer < c_.layers; ++layer) {
      for (std::uint32_t g = 0; g < c_.kv_heads; ++g) {
        Vector of_keys(n * n), of_queries(n * n), values(n);
        if (keys_[layer][g].empty()) {  // a prompt of one token: the first columns as they are
          skew_[layer][g].resize(n * n);
          for (std::uint32_t i = 0; i < n; ++i) skew_[layer][g][i * n + i] = 1;
          continue;
        }
        for (const Vector& k : keys_[layer][g]) add(k.data(), of_keys);
        for (std::size_t t = std::max<std::size_t>(queries_[layer].size(), 64) - 64; t < queries_[layer].size(); ++t) {
          for (std::uint32_t h = g * group(); h < (g + 1) * group(); ++h)
            add(queries_[layer][t].data() + h * n, of_queries);
        }
        double keys = 0, queries = 0;
        for (std::uint32_t i = 0; i < n; ++i) {
          keys += of_keys[i * n + i];
          queries += of_queries[i * n + i];
        }
        for (std::uint32_t i = 0; i < n * n; ++i) of_keys[i] = of_keys[i] / keys + of_queries[i] / queries;
        skew_[layer][g].resize(n * n);
        symmetric_eigen(of_keys.data(), n, skew_[layer][g].data(), values.data());
      }
    }
  }

  Vector step(std::int32_t token) {
    indexed_ = tokens_ / 32 * 32;
    ++tokens_;
    fetched = 0;
    Vector previous;
    slow_.attention = [&](std::uint32_t layer, const Vector& x, const Vector& q, const Keys& keys, const Keys& values) {
      const Vector speculated =
          layer == 0 ? q : slow_.query(layer, previous, model_.weights.layers[layer - 1].input_norm);
      previous = x;
      return attend(layer, q, speculated, keys, values);
    };
    const Vector logits = slow_.step(token);
    slow_.attention = {};
    return logits;
  }

  std::uint32_t indexed() const { return indexed_; }  // tokens, in the last step

  std::uint64_t fetched = 0;  // tokens in the last step, summed over the speculated layers and KV heads
  double closest = INFINITY;  // of a score to what it was compared with

 private:
  std::uint32_t group() const { return c_.q_heads / c_.kv_heads; }
  void add(const double* x, Vector& gram) const {
    for (std::uint32_t i = 0; i < c_.head_dim; ++i) {
      for (std::uint32_t j = 0; j < c_.head_dim; ++j) gram[i * c_.head_dim + j] += x[i] * x[j];
    }
  }
  double score(std::uint32_t layer, std::uint32_t h, const Vector& q, const Vector& key) const {
    const Vector& directions = skew_[layer][h / group()];
    double sum = 0;
    for (std::uint32_t c = 0; c < columns_; ++c) {
      double a = 0, b = 0;
      for (std::uint32_t d = 0; d < c_.head_dim; ++d) {
        a += directions[c * c_.head_dim + d] * q[h * c_.head_dim + d];
        b += directions[c * c_.head_dim + d] * key[d];
      }
      sum += a * b;
    }
    return sum / std::sqrt(double(c_.head_dim));
  }
  Vector attend(std::uint32_t layer, const Vector& q, const Vector& speculated, const Keys& keys, const Keys& values) {
    Vector out(std::size_t{c_.q_heads} * c_.head_dim);
    if (layer < rule_.dense) {
      for (std::uint32_t h = 0; h < c_.q_heads; ++h)
        attend_head(h, q, keys[h / group()], values[h / group()], std::vector<bool>(tokens_, true), out);
      return out;
    }
    std::vector<Vector> scores(c_.q_heads, Vector(indexed_));
    std::uint32_t near = 0;
    for (std::uint32_t h = 0; h < c_.q_heads; ++h) {
      for (std::uint32_t t = 0; t < indexed_; ++t) scores[h][t] = score(layer, h, speculated, keys[h / group()][t]);
      if (scores[h].empty()) continue;
      const double edge = *std::max_element(scores[h].begin(), scores[h].end()) - rule_.alpha;
      for (const double s : scores[h]) {
        near += s >= edge ? 1 : 0;
        closest = std::min(closest, std::abs(s - edge));
      }
    }
    const std::uint32_t mean = (near + c_.q_heads - 1) / c_.q_heads;
    const std::uint32_t keep =
        std::min({(mean + rule_.unit - 1) / rule_.unit, rule_.budget / rule_.unit, indexed_ / rule_.unit});
    for (std::uint32_t g = 0; g < c_.kv_heads; ++g) {
      std::vector<bool> seen(tokens_);
      if (apart()) {
        for (std::uint32_t h = g * group(); h < (g + 1) * group(); ++h)
          choose(
              keep, [&](std::uint32_t u) { return best_of(scores, h, h + 1, u, rule_.unit); }, seen);
      } else if (together()) {
        choose(
            keep, [&](std::uint32_t u) { return sum_over_heads(scores, u); }, seen);
      } else {
        choose(
            keep, [&](std::uint32_t u) { return best_of(scores, g * group(), (g + 1) * group(), u, rule_.unit); },
            seen);
      }
      fetched += static_cast<std::uint64_t>(std::count(seen.begin(), seen.end(), true));
      for (std::uint32_t t = indexed_; t < tokens_; ++t) seen[t] = true;
      for (std::uint32_t h = g * group(); h < (g + 1) * group(); ++h) attend_head(h, q, keys[g], values[g], seen, out);
    }
    return out;
  }
  bool apart() const { return std::string(rule_.scope) == "query_head"; }
  bool together() const { return std::string(rule_.scope) == "layer"; }
  /// The tokens of the `keep` units with the largest scores are seen.
  void choose(std::uint32_t keep, const std::function<double(std::uint32_t)>& score_of, std::vector<bool>& seen) {
    std::vector<std::pair<double, std::uint32_t>> units;
    for (std::uint32_t u = 0; u < indexed_ / rule_.unit; ++u) units.emplace_back(-score_of(u), u);
    std::sort(units.begin(), units.end());
    if (keep < units.size()) closest = std::min(closest, units[keep].first - units[keep - 1].first);
    for (std::uint32_t i = 0; i < keep; ++i) {
      for (std::uint32_t t = 0; t < rule_.unit; ++t) seen[units[i].second * rule_.unit + t] = true;
    }
  }
  /// Of a unit: the best of some query heads' scores of its tokens.
  static double best_of(const std::vector<Vector>& scores, std::uint32_t head, std::uint32_t end, std::uint32_t unit,
                        std::uint32_t tokens) {
    double best = -INFINITY;
    for (; head < end; ++head) {
      for (std::uint32_t t = unit * tokens; t < (unit + 1) * tokens; ++t) best = std::max(best, scores[head][t]);
    }
    return best;
  }
  double sum_over_heads(const std::vector<Vector>& scores, std::uint32_t unit) const {
    double sum = 0;
    for (std::uint32_t g = 0; g < c_.kv_heads; ++g)
      sum += best_of(scores, g * group(), (g + 1) * group(), unit, rule_.unit);
    return sum;
  }
  void attend_head(std::uint32_t h, const Vector& q, const std::vector<Vector>& keys, const std::vector<Vector>& values,
                   const std::vector<bool>& seen, Vector& out) const {
    const std::uint32_t n = c_.head_dim;
    double sum = 0;
    Vector weights(tokens_);
    for (std::uint32_t t = 0; t < tokens_; ++t) {
      if (!seen[t]) continue;
      double s = 0;
      for (std::uint32_t d = 0; d < n; ++d) s += q[h * n + d] * keys[t][d];
      sum += weights[t] = std::exp(s / std::sqrt(double(n)));
    }
    for (std::uint32_t t = 0; t < tokens_; ++t) {
      for (std::uint32_t d = 0; d < n; ++d) out[h * n + d] += weights[t] / sum * values[t][d];
    }
  }

  const Model& model_;
  InfinigenRule rule_;
  const ModelConfig& c_;
  SlowModel slow_;
  std::uint32_t columns_ = 0, tokens_ = 0, indexed_ = 0;
  std::vector<std::vector<Vector>> queries_, skew_;  // [layer][token], [layer][kv head]
  std::vector<Keys> keys_;
};

class InfinigenRules : public ::testing::TestWithParam<InfinigenRule> {};
INSTANTIATE_TEST_SUITE_P(
    Rules, InfinigenRules,
    ::testing::Values(InfinigenRule{207, 96, 0.3, 4, 1}, InfinigenRule{230, 64, 0.5, 0.5, 1},
                      InfinigenRule{201, 96, 0.3, 4, 32}, InfinigenRule{150, 64, 0.3, 0.2, 32},
                      InfinigenRule{201, 64, 0.3, 4, 32, 0, "layer"}, InfinigenRule{1, 32, 0.5, 4, 1},
                      InfinigenRule{207, 96, 0.3, 0.5, 1, 0, "layer"}, InfinigenRule{207, 96, 0.3, 4, 1, 1},
                      InfinigenRule{230, 64, 0.5, 0.5, 1, 2}, InfinigenRule{201, 96, 0.3, 4, 32, 2},
                      InfinigenRule{150, 64, 0.3, 0.2, 32, 1}, InfinigenRule{201, 64, 0.3, 4, 32, 2, "layer"},
                      InfinigenRule{1, 32, 0.5, 4, 1, 2}, InfinigenRule{207, 96, 0.3, 4, 32, 3},
                      InfinigenRule{207, 24, 0.3, 0.5, 1, 0, "query_head"},
                      InfinigenRule{201, 64, 0.3, 0.2, 32, 0, "query_head"},
                      InfinigenRule{230, 200, 0.5, 4, 1, 1, "query_head"}));

TEST_P(InfinigenRules, EqualTheSlowModel) {
  const InfinigenRule rule = GetParam();
  Bench bench(tiny_model(true, 3));
  const std::vector<std::int32_t> prompt = random_prompt(rule.prompt, rule.prompt);
  const auto method =
      make_method("infinigen:budget=" + std::to_string(rule.budget) + ",partial=" + std::to_string(rule.partial) +
                  ",alpha=" + std::to_string(rule.alpha) + ",fetch=" + (rule.unit == 1 ? "token" : "page") +
                  ",scope=" + rule.scope + ",dense_layers=" + std::to_string(rule.dense));
  const auto prefix = bench.engine.prefill(prompt);
  const DecodeRequest request{prefix.get(), 40};
  const auto session = bench.engine.open_session(*method, {&request, 1});
  bench.engine.release(*prefix);
  SlowInfinigen slow(bench.model, rule);
  for (std::size_t t = 0; t + 1 < prompt.size(); ++t) slow.prefill(prompt[t]);
  slow.skew();
  std::int32_t next = prompt.back();
  for (const std::uint32_t turn : {0u, 45u}) {
    if (turn > 0) {
      const std::vector<std::int32_t> more = random_prompt(turn, turn);
      session->append(0, more, 20);
      slow.prefill(next);
      for (std::size_t t = 0; t + 1 < more.size(); ++t) slow.prefill(more[t]);
      next = more.back();
    }
    std::vector<std::vector<float>> logits;
    const DecodeResult result = session->decode({.logits = &logits});
    ASSERT_EQ(logits.size(), turn == 0 ? 40u : 20u);
    std::uint64_t fetched = 0, moved = 0, pieces = 0, streamed = 0, flops = 0, scored = 0, speculated = 0;
    for (std::size_t n = 0; n < logits.size(); ++n) {
      const Vector expected = slow.step(next);
      next = result.sequences[0].tokens[n];
      fetched += slow.fetched;
      scored += slow.indexed();
      speculated += slow.indexed() > 0 ? 1 : 0;
      double worst = 0;
      for (std::size_t i = 0; i < expected.size(); ++i)
        worst = std::max(worst, std::abs(expected[i] - double(logits[n][i])));
      ASSERT_LT(worst, 3e-4) << "step " << n << " after a turn of " << turn;
    }
    for (const TraceRecord& r : result.trace.records) {
      if (std::string(r.name) == "fetch speculated kv") {
        moved += r.cost.h2d;
        pieces += r.cost.pieces;
      }
      if (std::string(r.name) == "speculate tokens") flops += r.cost.flops;
      if (std::string(r.name) != "fetch kv") continue;
      EXPECT_LT(r.layer, rule.dense);
      streamed += r.cost.h2d;
    }
    EXPECT_EQ(streamed, scored * rule.dense * bench.engine.kv().shape().token_bytes() / 3) << "all that is on the host";
    EXPECT_EQ(moved, fetched * 2 * bench.engine.kv().shape().vector_bytes());
    // Tokens of a KV head come as K and as V; pages with both, of 16 tokens, or of 32 tokens and all heads.
    const std::uint64_t heads = bench.model.config.kv_heads;
    const bool together = std::string(rule.scope) == "layer";
    EXPECT_EQ(pieces, rule.unit == 1 ? 2 * fetched : together ? fetched / heads / 32 : fetched / 16);
    // 3 layers but the dense ones, 4 query heads: the query is skewed, D to the columns, and meets the columns of every
    // indexed token.
    const auto columns = static_cast<std::uint64_t>(std::ceil(rule.partial * 16));
    EXPECT_EQ(flops, (3 - rule.dense) * 4 * 2 * columns * (16 * speculated + scored));
  }
  ASSERT_GT(slow.closest, 1e-6) << "float and double may choose differently here: take another prompt";
}

TEST(InfinigenOptions, TheFirstTwoLayersAreDense) {
  EXPECT_EQ(make_method("infinigen")->spelled_out(), make_method("infinigen:dense_layers=2")->spelled_out());
}

TEST(InfinigenCounters, DenseLayersHaveRoomForTwoAndNoIndex) {
  Bench bench(tiny_model(true, 3));
  const std::size_t token = bench.engine.kv().shape().token_bytes(), vector = 64;
  for (const std::uint32_t dense : {0u, 1u, 2u, 3u, 7u}) {
    const auto method =
        make_method("infinigen:budget=40,partial=0.25,fetch=token,dense_layers=" + std::to_string(dense));
    // 100 prefilled, of which 96 are on the host; up to 116 tokens.
    const DecodeResult result = bench.decode(*method, {random_prompt(101, 4)}, 16);
    const std::size_t indexed = 3 - std::min(dense, 3u);
    const std::size_t streamed = std::min<std::size_t>(dense, 2) * 96 * token / 3;
    const std::size_t index = indexed * 2 * (4 * 16 * 4 + 116 * 4 * 4);  // of 2 heads: directions, components
    const std::size_t fetched = std::min<std::size_t>(indexed, 2) * 2 * (41 * 4 + 2 * 40 * vector);
    // At the end of the setup a page and the prompt's queries, which are larger than a step's second page.
    const std::size_t pages = indexed > 0 ? 16 * token + std::size_t{3} * 64 * 4 * 16 * 4 : 32 * token;
    EXPECT_EQ(result.sequences[0].peak_kv_bytes[0], pages + streamed + index + fetched) << dense << " dense";
    EXPECT_EQ(result.sequences[0].peak_kv_bytes[1], 96 * token);
    EXPECT_EQ(method->needs(bench.engine.shape()).lossless, indexed == 0);
  }
}

TEST(InfinigenTime, DenseLayersAreOnTheirWayFromTheStepsBeginning) {
  Bench bench(tiny_model(true, 5));
  const DecodeResult result = bench.decode(*make_method("infinigen:dense_layers=3"), {random_prompt(1001, 4)}, 2);
  std::map<std::string, std::vector<const TraceRecord*>> by_name;
  for (const TraceRecord& r : result.trace.records) by_name[r.name].push_back(&r);
  const auto& dense = by_name["fetch kv"];
  const auto& speculated = by_name["fetch speculated kv"];
  const auto& attention = by_name["device attention"];
  ASSERT_EQ(dense.size(), 2u * 3);
  ASSERT_EQ(speculated.size(), 2u * 2);
  ASSERT_EQ(attention.size(), 2u * 5);
  for (std::size_t step = 0; step < 2; ++step) {
    const auto* const* fetch = dense.data() + 3 * step;
    const auto* const* ahead = speculated.data() + 2 * step;
    const auto* const* attend = attention.data() + 5 * step;
    EXPECT_EQ(fetch[1]->start, fetch[0]->end) << "while layer 0 waits for its own";
    EXPECT_GE(fetch[2]->start, attend[0]->end) << "in layer 0's room";
    EXPECT_LE(fetch[2]->start, attend[1]->start);
    for (std::size_t layer = 0; layer < 3; ++layer) EXPECT_GE(attend[layer]->start, fetch[layer]->end);
    EXPECT_EQ(ahead[0]->layer, 3u);
    EXPECT_LE(ahead[0]->start, attend[2]->start) << "while the last dense layer runs";
    for (std::size_t layer = 3; layer < 5; ++layer) EXPECT_GE(attend[layer]->start, ahead[layer - 3]->end);
  }
}

}  // namespace
}  // namespace tandem::testing
