// Head profiles of the golden models against an independent model in double precision: other code for the forward pass
// (slow_model.h) and other code for each statistic.
#include "eval/heads/heads.h"

#include <algorithm>
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <numeric>
#include <set>

#include "tests/engine/runtime/slow_model.h"
#include "tests/engine/runtime/tiny.h"
#include "tests/golden/golden.h"

namespace tandem::testing {
namespace {

using namespace eval;
using Vector = SlowModel::Vector;

struct Seen {  // one query of one layer
  Vector x, q;
  std::vector<std::vector<Vector>> keys, values;  // [kv head][token]
  Vector predicted_next, predicted_own;
};

/// [query][layer] for the queries from `first` on.
std::vector<std::vector<Seen>> look_at(const Model& model, const HeadPrompt& prompt) {
  SlowModel slow(model);
  std::vector<std::vector<Seen>> all;
  for (std::size_t t = 0; t + 1 < prompt.tokens.size(); ++t) {
    std::vector<Seen> layers;
    slow.step(prompt.tokens[t], {},
              [&](std::uint32_t layer, const Vector& x, const Vector& q, const auto& keys, const auto& values) {
                if (t < prompt.first_query) return;
                Seen seen{x, q, keys, values, {}, {}};
                if (layer > 0) {
                  const auto& weights = model.weights.layers;
                  seen.predicted_next = slow.query(layer, layers[layer - 1].x, weights[layer].input_norm);
                  seen.predicted_own = slow.query(layer, layers[layer - 1].x, weights[layer - 1].input_norm);
                }
                layers.push_back(std::move(seen));
              });
    if (t >= prompt.first_query) all.push_back(std::move(layers));
  }
  return all;
}

double dot(const Vector& a, const Vector& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

class SlowProfile {
 public:
  SlowProfile(const Model& model, HeadOptions options) : c_(model.config), options_(options) {}

  Vector own(const Vector& q, std::uint32_t h) const {
    return {q.begin() + h * c_.head_dim, q.begin() + (h + 1) * c_.head_dim};
  }
  Vector weights(const Seen& seen, std::uint32_t h, std::size_t tokens) const {
    Vector w;
    for (std::size_t t = 0; t < tokens; ++t)
      w.push_back(std::exp(dot(own(seen.q, h), seen.keys[h / group()][t]) / std::sqrt(double(c_.head_dim))));
    const double sum = std::accumulate(w.begin(), w.end(), 0.0);
    for (double& x : w) x /= sum;
    return w;
  }
  std::uint32_t group() const { return c_.q_heads / c_.kv_heads; }

  /// Tokens of whole blocks, the heaviest removed one by one until the target is reached.
  static std::set<std::size_t> keep(const Vector& w, std::size_t block, double target) {
    std::vector<std::pair<double, std::size_t>> blocks;
    for (std::size_t b = 0; b * block < w.size(); ++b) {
      double mass = 0;
      for (std::size_t t = b * block; t < std::min(w.size(), (b + 1) * block); ++t) mass += w[t];
      blocks.emplace_back(-mass, b);
    }
    std::sort(blocks.begin(), blocks.end());
    std::set<std::size_t> kept;
    double mass = 0;
    for (const auto& [negative, b] : blocks) {
      if (mass >= target) break;
      mass -= negative;
      for (std::size_t t = b * block; t < std::min(w.size(), (b + 1) * block); ++t) kept.insert(t);
    }
    return kept;
  }

  Vector output(const Seen& seen, std::uint32_t h, const std::function<bool(std::size_t)>& visible) const {
    const Vector w = weights(seen, h, seen.keys[0].size());
    Vector out(c_.head_dim);
    double sum = 0;
    for (std::size_t t = 0; t < w.size(); ++t) {
      if (!visible(t)) continue;
      sum += w[t];
      for (std::uint32_t d = 0; d < c_.head_dim; ++d) out[d] += w[t] * seen.values[h / group()][t][d];
    }
    for (double& x : out) x /= sum;
    return out;
  }

  bool streaming(const Seen& seen, std::uint32_t h) const {
    const std::size_t tokens = seen.keys[0].size();
    double largest = 0;
    for (std::uint32_t other = 0; other < c_.q_heads; ++other) {
      const Vector o = output(seen, other, [](std::size_t) { return true; });
      largest = std::max(largest, std::sqrt(dot(o, o)));
    }
    Vector o = output(seen, h, [](std::size_t) { return true; });
    const Vector kept =
        output(seen, h, [&](std::size_t t) { return t < options_.streaming_sinks || t + options_.window >= tokens; });
    for (std::size_t d = 0; d < o.size(); ++d) o[d] -= kept[d];
    return std::sqrt(dot(o, o)) / largest <= options_.tolerance;
  }

  static double shared(const Vector& a, const Vector& b) {
    const std::size_t n = a.size(), k = (n + 7) / 8;
    const auto best = [&](const Vector& scores) {
      std::vector<std::size_t> order(n);
      std::iota(order.begin(), order.end(), std::size_t{0});
      std::stable_sort(order.begin(), order.end(), [&](auto x, auto y) { return scores[x] > scores[y]; });
      return std::set<std::size_t>(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(k));
    };
    const auto first = best(a), second = best(b);
    std::size_t both = 0;
    for (const std::size_t t : first) both += second.count(t);
    return double(both) / double(k);
  }

  Vector block_scores(const Seen& seen, std::uint32_t h, std::size_t tokens) const {
    Vector scores;
    const Vector q = own(seen.q, h);
    for (std::size_t b = 0; b < tokens / kOverlapBlock; ++b) {
      double score = 0;
      for (std::uint32_t d = 0; d < c_.head_dim; ++d) {
        double most = -INFINITY;
        for (std::size_t t = b * kOverlapBlock; t < (b + 1) * kOverlapBlock; ++t)
          most = std::max(most, q[d] * seen.keys[h / group()][t][d]);
        score += most;
      }
      scores.push_back(score);
    }
    return scores;
  }

 private:
  const ModelConfig& c_;
  HeadOptions options_;
};

double cosine_of(const Vector& a, const Vector& b) {
  return dot(a, b) / std::sqrt(dot(a, a) * dot(b, b));
}

void expect_change(const InputChange& got, const std::vector<std::vector<std::vector<Seen>>>& seen,
                   std::uint32_t layer) {
  if (layer == 0) {
    EXPECT_TRUE(std::isnan(got.cosine) && std::isnan(got.added));
    return;
  }
  double cosine = 0, added = 0, queries = 0;
  for (const auto& steps : seen) {
    for (const std::vector<Seen>& layers : steps) {
      const Vector &before = layers[layer - 1].x, &now = layers[layer].x;
      cosine += cosine_of(before, now);
      // |a - b|^2 by the three products.
      added += std::sqrt((dot(now, now) - 2 * dot(now, before) + dot(before, before)) / dot(before, before));
      ++queries;
    }
  }
  EXPECT_NEAR(got.cosine, cosine / queries, 1e-5);
  EXPECT_NEAR(got.added, added / queries, 1e-5);
}

class HeadProfiles : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Golden, HeadProfiles, ::testing::Values("tiny_llama", "tiny_qwen3"),
                         [](const auto& param) { return std::string(param.param); });

TEST_P(HeadProfiles, AgreeWithAnIndependentModelInDoublePrecision) {
  EngineOptions engine;
  engine.prefill_chunk = 50;  // queries and keys from several chunks
  Bench bench(load_model((golden_folder() / GetParam()).string(), false), sim(), engine);
  const ModelConfig& c = bench.model.config;
  HeadOptions options{.sinks = 4, .window = 24, .streaming_sinks = 8, .tolerance = 0.3};
  std::vector<HeadPrompt> prompts;
  prompts.push_back({"a", random_prompt(150, 5, c.vocab), 143});
  prompts.push_back({"b", random_prompt(101, 6, c.vocab), 95});
  const HeadProfile profile = profile_heads(bench.model, bench.engine, bench.pool, prompts, options);
  EXPECT_EQ(profile.queries, 6u + 5u);
  ASSERT_EQ(profile.layers.size(), c.layers);

  const SlowProfile slow(bench.model, options);
  std::vector<std::vector<std::vector<Seen>>> seen;  // [prompt][query][layer]
  seen.reserve(prompts.size());
  for (const HeadPrompt& prompt : prompts) seen.push_back(look_at(bench.model, prompt));
  const double queries = 11, pairs = 9;
  double streaming_total = 0;
  for (std::uint32_t layer = 0; layer < c.layers; ++layer) {
    for (std::uint32_t h = 0; h < c.q_heads; ++h) {
      HeadStats expected;
      double next = 0, own = 0;
      for (const auto& steps : seen) {
        for (std::size_t n = 0; n < steps.size(); ++n) {
          const Seen& now = steps[n][layer];
          const std::size_t tokens = now.keys[0].size();
          const Vector w = slow.weights(now, h, tokens);
          for (std::size_t t = 0; t < tokens; ++t) {
            if (t < options.sinks) {
              expected.sink_mass += w[t] / queries;
            } else if (t + options.window >= tokens) {
              expected.window_mass += w[t] / queries;
            }
          }
          for (std::size_t t = 0; t < kMassTargets.size(); ++t) {
            for (std::size_t b = 0; b < kBudgetBlocks.size(); ++b)
              expected.budget[t][b] +=
                  double(SlowProfile::keep(w, kBudgetBlocks[b], kMassTargets[t]).size()) / double(tokens) / queries;
          }
          expected.streaming += slow.streaming(now, h) / queries;
          next += layer == 0 ? 0 : cosine_of(slow.own(now.predicted_next, h), slow.own(now.q, h)) / queries;
          own += layer == 0 ? 0 : cosine_of(slow.own(now.predicted_own, h), slow.own(now.q, h)) / queries;
          if (n == 0) continue;
          const Seen& before = steps[n - 1][layer];
          expected.token_overlap +=
              SlowProfile::shared(slow.weights(before, h, tokens - 1), slow.weights(now, h, tokens - 1)) / pairs;
          expected.block_overlap +=
              SlowProfile::shared(slow.block_scores(before, h, tokens - 1), slow.block_scores(now, h, tokens - 1)) /
              pairs;
        }
      }
      const HeadStats& got = profile.layers[layer].q_heads[h];
      SCOPED_TRACE(fmt::format("layer {} head {}", layer, h));
      EXPECT_NEAR(got.sink_mass, expected.sink_mass, 1e-5);
      EXPECT_NEAR(got.window_mass, expected.window_mass, 1e-5);
      EXPECT_NEAR(got.streaming, expected.streaming, 1e-9);
      EXPECT_NEAR(got.token_overlap, expected.token_overlap, 1e-9);
      EXPECT_NEAR(got.block_overlap, expected.block_overlap, 1e-9);
      for (std::size_t t = 0; t < kMassTargets.size(); ++t) {
        for (std::size_t b = 0; b < kBudgetBlocks.size(); ++b)
          EXPECT_NEAR(got.budget[t][b], expected.budget[t][b], 1e-9);
      }
      if (layer == 0) {
        EXPECT_TRUE(std::isnan(got.cosine_next) && std::isnan(got.cosine_own));
      } else {
        EXPECT_NEAR(got.cosine_next, next, 1e-5);
        EXPECT_NEAR(got.cosine_own, own, 1e-5);
      }
      streaming_total += got.streaming;
    }
    expect_change(profile.layers[layer].input, seen, layer);
    // A KV head's budget is the union of its group's choices.
    for (std::uint32_t g = 0; g < c.kv_heads; ++g) {
      double streaming = 0;
      Budgets budget{};
      for (const auto& steps : seen) {
        for (const auto& layers : steps) {
          const Seen& now = layers[layer];
          bool all = true;
          for (std::uint32_t h = g * slow.group(); h < (g + 1) * slow.group(); ++h) all = all && slow.streaming(now, h);
          streaming += all / queries;
          for (std::size_t t = 0; t < kMassTargets.size(); ++t) {
            for (std::size_t b = 0; b < kBudgetBlocks.size(); ++b) {
              std::set<std::size_t> kept;
              for (std::uint32_t h = g * slow.group(); h < (g + 1) * slow.group(); ++h)
                kept.merge(
                    SlowProfile::keep(slow.weights(now, h, now.keys[0].size()), kBudgetBlocks[b], kMassTargets[t]));
              budget[t][b] += double(kept.size()) / double(now.keys[0].size()) / queries;
            }
          }
        }
      }
      const KvHeadStats& got = profile.layers[layer].kv_heads[g];
      EXPECT_NEAR(got.streaming, streaming, 1e-9);
      for (std::size_t t = 0; t < kMassTargets.size(); ++t) {
        for (std::size_t b = 0; b < kBudgetBlocks.size(); ++b) EXPECT_NEAR(got.budget[t][b], budget[t][b], 1e-9);
      }
    }
  }
  // The test would prove little if every head streamed, or none.
  EXPECT_GT(streaming_total, 0);
  EXPECT_LT(streaming_total, double(c.layers) * c.q_heads);
}

TEST(HeadProfile, DoesNotDependOnThreadsOrDevice) {
  std::vector<HeadProfile> profiles;
  const std::vector<HeadPrompt> prompts = {{"a", random_prompt(200, 9), 190}};
  for (const unsigned threads : {1u, 3u}) {
    for (const bool emu : {false, true}) {
      Bench bench(tiny_model(), emu ? make_emu_device() : sim(), {}, threads);
      profiles.push_back(profile_heads(bench.model, bench.engine, bench.pool, prompts, {.window = 32}));
    }
  }
  for (const HeadProfile& other : profiles) {
    for (std::size_t layer = 0; layer < other.layers.size(); ++layer) {
      for (std::size_t h = 0; h < other.layers[layer].q_heads.size(); ++h) {
        const HeadStats &a = profiles[0].layers[layer].q_heads[h], &b = other.layers[layer].q_heads[h];
        EXPECT_EQ(a.sink_mass, b.sink_mass);
        EXPECT_EQ(a.budget, b.budget);
        EXPECT_EQ(a.token_overlap, b.token_overlap);
        EXPECT_EQ(layer == 0 ? 0 : a.cosine_next, layer == 0 ? 0 : b.cosine_next);
      }
    }
  }
}

TEST(HeadPrompts, QueriesProduceTheAnswer) {
  const Model model = load_model("embedded");
  const auto prompts = ruler_head_prompts(model, {"niah_single_1", "niah_multikey_3"}, 512, 2, 42);
  ASSERT_EQ(prompts.size(), 4u);
  for (const HeadPrompt& prompt : prompts) {
    EXPECT_LE(prompt.tokens.size(), 512u);
    const std::string text = model.tokenizer->decode(prompt.tokens);
    const std::string answer = model.tokenizer->decode(std::span(prompt.tokens).subspan(prompt.first_query + 1));
    EXPECT_TRUE(text.ends_with(" is" + answer)) << answer;
    EXPECT_NE(text.find(answer), text.size() - answer.size()) << "the answer is in the haystack: " << answer;
  }
}

TEST(HeadPrompts, TextWindowsCoverTheText) {
  const Model model = load_model("embedded");
  std::string text;
  for (int i = 0; i < 400; ++i) text += fmt::format("Line {} of the text. ", i);
  const auto prompts = text_head_prompts(model, text, "lines", 400, 3);
  ASSERT_EQ(prompts.size(), 3u);
  const auto tokens = model.tokenizer->encode(text, false);
  for (const HeadPrompt& prompt : prompts) {
    EXPECT_EQ(prompt.tokens.size(), 400u);
    EXPECT_EQ(prompt.tokens.front(), model.tokenizer->bos());
    EXPECT_EQ(prompt.tokens.size() - 1 - prompt.first_query, kTextQueries);
  }
  EXPECT_EQ(prompts[0].tokens[1], tokens.front());
  EXPECT_EQ(prompts[2].tokens.back(), tokens.back());
  EXPECT_THAT([&] { text_head_prompts(model, "Too short.", "short.txt", 400, 1); },
              ::testing::ThrowsMessage<InputError>(::testing::HasSubstr("--text-file 'short.txt' has")));
}

}  // namespace
}  // namespace tandem::testing
