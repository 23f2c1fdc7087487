// Fluxion with a predictor: the features that the engine computes, step by step, lead to the budgets that the same
// network gives for features computed from a double-precision model.
#include "methods/fluxion/predicted_heads.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <mutex>
#include <random>
#include <set>

#include "engine/common/error.h"
#include "methods/fluxion/features.h"
#include "methods/fluxion/predictor.h"
#include "methods/fluxion/selector.h"
#include "methods/registry.h"
#include "tests/engine/model/model_folder.h"
#include "tests/engine/runtime/slow_model.h"
#include "tests/engine/runtime/tiny.h"
#include "tests/methods/fluxion/naive_features.h"
#include "tests/methods/fluxion/tiny_predictor.h"

namespace tandem::testing {
namespace {

using Vector = SlowModel::Vector;

std::vector<float> floats(const std::vector<Vector>& rows) {
  std::vector<float> out;
  for (const Vector& row : rows) {
    for (const double x : row) out.push_back(static_cast<float>(x));
  }
  return out;
}

/// One layer of the slow model in f32, and attention over its segments.
struct PredictedLayer {
  std::vector<float> q;
  std::vector<std::vector<float>> keys, values;
  std::vector<const float*> key_rows, value_rows;
  LayerQuery query;

  PredictedLayer(const ModelConfig& c, const Vector& now, const std::vector<std::vector<Vector>>& k,
                 const std::vector<std::vector<Vector>>& v, const Segments& at) {
    q.assign(now.begin(), now.end());
    for (std::uint32_t g = 0; g < c.kv_heads; ++g) {
      keys.push_back(floats(k[g]));
      values.push_back(floats(v[g]));
    }
    for (std::uint32_t g = 0; g < c.kv_heads; ++g) {
      key_rows.push_back(keys[g].data());
      value_rows.push_back(values[g].data());
    }
    query = {c.q_heads, c.kv_heads, c.head_dim, q.data(), key_rows, value_rows, at};
  }
};

TEST(FluxionPredictedHeads, EachHeadAttendsWhatThePredictorSays) {
  const TemporaryFolder folder;
  const std::filesystem::path file = write_predictor(folder);
  const Predictor predictor = Predictor::load(file);
  Bench bench(tiny_model());
  const ModelConfig& c = bench.model.config;
  const std::vector<std::int32_t> prompt = random_prompt(423, 21);
  const std::uint32_t prefill = 422;
  std::vector<std::vector<float>> logits;
  const DecodeResult result =
      bench.decode(*make_method("fluxion:sinks=16,window=32,heads=" + file.string()), {prompt}, 8, {.logits = &logits});

  SlowModel slow(bench.model);
  std::vector<PrefillStatistics> statistics(c.layers);
  std::vector<std::vector<HeadProperties>> said(c.layers, std::vector<HeadProperties>(c.q_heads));
  const SlowModel::Look look = [&](std::uint32_t layer, const Vector&, const Vector& q, const auto& keys,
                                   const auto& values) {
    const auto tokens = static_cast<std::uint32_t>(keys[0].size());
    const Segments at = fluxion_segments(prefill, tokens, 16, 32);
    const PredictedLayer data(c, q, keys, values, at);
    if (tokens == prefill) {
      std::vector<HostDigests> digests;
      for (const float* rows : data.key_rows)
        digests.emplace_back(rows + std::size_t{at.sinks} * c.head_dim, at.host(), c.head_dim);
      statistics[layer] = prefill_statistics(layer, data.query, digests, {});
      return;
    }
    std::vector<float> o[3], lse[2];
    for (const HeadAttention& head : attend_heads(data.query)) {
      const AttentionPart* parts[] = {&head.sinks, &head.local, &head.device};
      for (int p = 0; p < 3; ++p) o[p].insert(o[p].end(), parts[p]->o.begin(), parts[p]->o.end());
      for (int p = 0; p < 2; ++p) lse[p].push_back(static_cast<float>(parts[p]->lse));
    }
    std::vector<float> rows(std::size_t{c.q_heads} * kFeatures);
    features(statistics[layer],
             {.host_tokens = at.host(),
              .device_tokens = at.device(),
              .q = data.q.data(),
              .sink_o = o[0].data(),
              .sink_lse = lse[0].data(),
              .local_o = o[1].data(),
              .local_lse = lse[1].data(),
              .device_o = o[2].data()},
             rows.data());
    predictor.predict(rows.data(), static_cast<int>(c.q_heads), said[layer].data());
  };
  std::vector<float> budgets;
  std::vector<double> shares, watched_shares;  // of the host's tokens
  const SlowModel::Visible visible = [&](std::uint32_t layer, std::uint32_t h, const Vector& q,
                                         const std::vector<Vector>& keys) {
    const Segments at = fluxion_segments(prefill, static_cast<std::uint32_t>(keys.size()), 16, 32);
    std::vector<bool> seen(keys.size());
    for (std::uint32_t t = 0; t < seen.size(); ++t) seen[t] = t < at.sinks || t >= at.window;
    const std::uint32_t group = c.q_heads / c.kv_heads, first = h / group * group;
    const GroupChoice choice =
        choose_granularity(std::span(said[layer]).subspan(first, group), at.host(), SelectorStage::skip, 1);
    const std::uint32_t block = choice.block, keep = choice.keep[h - first];
    budgets.push_back(static_cast<float>(keep) * static_cast<float>(block));
    shares.push_back(std::min(1.0, double(block) * keep / at.host()));
    std::vector<std::pair<double, std::uint32_t>> order;
    for (std::uint32_t t = at.sinks; t < at.window; t += block)
      order.emplace_back(upper_bound(q, keys, t, std::min(t + block, at.window)), t);
    std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
    for (std::size_t i = 0; i < std::min<std::size_t>(keep, order.size()); ++i) {
      for (std::uint32_t t = order[i].second; t < std::min(order[i].second + block, at.window); ++t) seen[t] = true;
    }
    return seen;
  };
  for (std::uint32_t t = 0; t < prefill; ++t) slow.step(prompt[t], {}, t + 1 == prefill ? look : SlowModel::Look{});
  for (std::size_t n = 0; n < logits.size(); ++n) {
    const Vector expected = slow.step(n == 0 ? prompt.back() : result.sequences[0].tokens[n - 1], visible, look);
    double worst = 0;
    for (std::size_t i = 0; i < expected.size(); ++i)
      worst = std::max(worst, std::abs(expected[i] - double(logits[n][i])));
    EXPECT_LT(worst, 3e-4) << "step " << n;
  }
  // What --head-errors looks at is what is decoded.
  const auto watched = make_watched_fluxion(
      parse_method_spec("fluxion:sinks=16,window=32,heads=" + file.string()), [&](const HeadErrors& errors) {
        watched_shares.insert(watched_shares.end(), errors.attended.begin(), errors.attended.end());
      });
  EXPECT_EQ(bench.decode(*watched, {prompt}, 8).sequences[0].tokens, result.sequences[0].tokens);
  std::sort(shares.begin(), shares.end());
  std::sort(watched_shares.begin(), watched_shares.end());
  EXPECT_EQ(watched_shares, shares);
  std::sort(budgets.begin(), budgets.end());
  budgets.erase(std::unique(budgets.begin(), budgets.end()), budgets.end());
  EXPECT_GE(budgets.size(), 4u);  // heads and steps differ in what they need
  std::uint64_t flops = 0;
  for (const TraceRecord& r : result.trace.records) flops += std::string(r.name) == "estimate heads" ? r.cost.flops : 0;
  EXPECT_GT(flops, 8u * 2 * predictor.flops(4));  // steps x layers: the network and the features
}

TEST(FluxionPredictedHeads, ARowWithNothingOnTheHostIsNotAsked) {
  const TemporaryFolder folder;
  const std::string spec = "fluxion:sinks=16,window=32,heads=" + write_predictor(folder).string();
  Bench bench(tiny_model());
  const auto flops = [&](const std::vector<std::vector<std::int32_t>>& prompts) {
    std::uint64_t sum = 0;
    for (const TraceRecord& r : bench.decode(*make_method(spec), prompts, 3).trace.records)
      sum += std::string(r.name) == "estimate heads" ? r.cost.flops : 0;
    return sum;
  };
  const std::uint64_t alone = flops({random_prompt(200, 1)});
  EXPECT_GT(alone, 0u);
  EXPECT_EQ(flops({random_prompt(200, 1), random_prompt(20, 2)}), alone);
}

TEST(FluxionPredictedHeads, WhatItKeepsOfAPromptIsCounted) {
  const TemporaryFolder folder;
  const std::string spec = "fluxion:sinks=16,window=32,policy=cpu-only,heads=";
  Bench bench(tiny_model());
  const ModelConfig& c = bench.model.config;
  const std::size_t heads = std::size_t{c.q_heads} * (kFeatures + c.head_dim),
                    keys = std::size_t{c.kv_heads} * c.head_dim, layer = (heads + keys) * sizeof(float);
  const auto decode = [&](const std::string& source, std::uint32_t tokens) {
    return bench.decode(*make_method(spec + source), {random_prompt(tokens, 1)}, 3);
  };
  const auto peak = [&](const std::string& source, std::uint32_t tokens) {
    return decode(source, tokens).sequences[0].peak_kv_bytes[static_cast<int>(Tier::device)];
  };
  const std::string predictor = write_predictor(folder).string();
  const std::size_t anchors = std::size_t{c.layers} * c.q_heads * c.head_dim * sizeof(float);  // it looks at, once
  for (const std::string& source : {predictor, std::string("published")}) {
    EXPECT_EQ(peak(source, 20), peak("fixed", 20) + anchors) << source;  // nothing in host memory
    EXPECT_EQ(peak(source, 600), peak("fixed", 600) + anchors + c.layers * layer) << source;
    std::uint64_t read = 0, steps = 0;
    for (const TraceRecord& r : decode(source, 600).trace.records) {
      if (std::string(r.name) != "estimate heads") continue;
      read += r.cost.context;
      ++steps;
    }
    EXPECT_EQ(steps, 3u * c.layers);
    const auto watched = make_watched_fluxion(parse_method_spec(spec + source), [](const HeadErrors&) {});
    EXPECT_EQ(bench.decode(*watched, {random_prompt(600, 1)}, 3).sequences[0].peak_kv_bytes[0], peak(source, 600));
    EXPECT_EQ(read, steps * layer) << source;
  }
}

TEST(FluxionPredictedHeads, AFolderHasOneForEachRule) {
  const TemporaryFolder folder;
  namespace fs = std::filesystem;
  const fs::path file = write_predictor(folder), own = folder.path() / "fluxion";
  const auto made = [](const std::string& heads) {
    return [heads] { return make_method("fluxion:sinks=16,window=32,heads=" + heads)->content(); };
  };
  const std::uint64_t content = made(file.string())();
  EXPECT_THAT(made(folder.path().string()), ::testing::ThrowsMessage<InputError>(::testing::HasSubstr(
                                                "has no predictor: neither fluxion.safetensors nor fluxion/fluxion")));
  fs::create_directory(own);
  fs::copy_file(file, own / "fluxion.safetensors");
  EXPECT_EQ(made(folder.path().string())(), content);  // a model's folder
  EXPECT_EQ(made(own.string())(), content);
  EXPECT_THAT(made(own.string() + ",budgets=output"),
              ::testing::ThrowsMessage<InputError>(::testing::HasSubstr("neither output.safetensors")));
  // The rule of the file counts, not its name.
  fs::copy_file(file, own / "output.safetensors");
  EXPECT_THAT(made(own.string() + ",budgets=output"),
              ::testing::ThrowsMessage<InputError>(::testing::HasSubstr("option 'budgets'")));
  const char* before = std::getenv("HOME");
  const std::string home = before == nullptr ? "" : before;
  setenv("HOME", folder.path().c_str(), 1);
  EXPECT_EQ(made("~/predictor.safetensors")(), content);
  EXPECT_EQ(made("~/fluxion")(), content);
  before == nullptr ? unsetenv("HOME") : setenv("HOME", home.c_str(), 1);
}

TEST(FluxionPredictedHeads, APredictorOfAnotherModelIsRefused) {
  const TemporaryFolder folder;
  const std::filesystem::path file = write_predictor(folder);
  Bench bench(tiny_model());
  const auto method = make_method("fluxion:sinks=16,window=48,heads=" + file.string());
  try {
    bench.decode(*method, {random_prompt(200, 1)}, 2);
    FAIL() << "a predictor for another window was used";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("window=32"));
    EXPECT_THAT(error.what(), ::testing::HasSubstr("heads=fixed"));
  }
  for (const char* heads : {"/nowhere/predictor.safetensors", "sead", "tiny"}) {  // tiny ships without one
    try {
      make_method(std::string("fluxion:heads=") + heads);
      FAIL() << heads;
    } catch (const InputError& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr(std::string("no file '") + heads));
      EXPECT_THAT(error.what(), ::testing::HasSubstr("embedded, deep and seed"));
    }
  }
  try {
    make_method("fluxion:sinks=16,window=32,tau=0.05,heads=" + file.string());
    FAIL() << "another tau than the predictor was trained for";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("give tau=0.1"));
  }
  try {
    make_method("fluxion:sinks=16,window=32,budgets=score,heads=" + file.string());
    FAIL() << "features by another rule than the predictor was trained with";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("give budgets=fluxion"));
  }
}

/// Predictors that say a feature as the budget and another one as the slope, so that all 41 can be read; the heads then
/// need everything.
class ReadFeatures : public HeadSource {
 public:
  ReadFeatures(const TemporaryFolder& folder, BudgetPolicy policy) {
    for (int f = 0; f < kFeatures; f += 2) {
      PredictorFile file;
      std::vector<float> weight(3 * std::size_t{kFeatures});
      weight[f] = kLargest;
      if (f + 1 < kFeatures) weight[kFeatures + f + 1] = kLargest;
      file.add("feature.mean", "F32", {41}, std::vector<float>(kFeatures));
      file.add("feature.std", "F32", {41}, std::vector<float>(kFeatures, kLargest));  // none is cut at 10 of them
      file.add("heads.bias", "F32", {3}, std::vector<float>(3));
      file.add("heads.weight", "F32", {3, 41}, weight);
      sources_.push_back(predicted_heads(
          std::make_shared<const Predictor>(Predictor::load(file.write(folder.path() / std::to_string(f), policy))),
          policy, nullptr));
    }
  }
  std::uint32_t last_queries() const override { return sources_[0]->last_queries(); }
  std::shared_ptr<void> prepare(SequenceState& sequence, Range host, Ops& ops) const override {
    auto memories = std::make_shared<Memories>();
    for (const auto& source : sources_) memories->push_back(source->prepare(sequence, host, ops));
    return memories;
  }
  Cost cost(const ModelShape&, std::uint32_t) const override { return {}; }
  void properties(const ModelShape& shape, const HeadInputs& inputs, HeadProperties* out) const override {
    std::vector<float> found(std::size_t{shape.q_heads} * kFeatures);
    for (std::size_t i = 0; i < sources_.size(); ++i) {
      HeadInputs own = inputs;
      own.memory = (*static_cast<const Memories*>(inputs.memory))[i].get();
      sources_[i]->properties(shape, own, out);
      for (std::uint32_t h = 0; h < shape.q_heads; ++h) {
        found[h * kFeatures + 2 * i] = out[h].budget;
        if (2 * i + 1 < kFeatures) found[h * kFeatures + 2 * i + 1] = out[h].slope;
      }
    }
    std::fill(out, out + shape.q_heads, HeadProperties{1, 0, false});
    const std::lock_guard lock(mutex);
    seen[{inputs.view.layer, inputs.view.tokens}] = std::move(found);
  }

  mutable std::mutex mutex;
  mutable std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<float>> seen;  // by layer and tokens

 private:
  using Memories = std::vector<std::shared_ptr<void>>;
  static constexpr float kLargest = 1024;
  std::vector<std::shared_ptr<const HeadSource>> sources_;
};

/// What the engine computed in decode steps, against the definitions over queries, keys and values of a
/// double-precision model. `at`: where the tokens lie when there are so many.
void expect_features(Bench& bench, const std::vector<std::int32_t>& prompt, const std::vector<std::int32_t>& generated,
                     const ReadFeatures& source, const std::set<std::uint32_t>& looked_at, BudgetPolicy policy,
                     const std::function<Segments(std::uint32_t tokens)>& at) {
  const ModelConfig& c = bench.model.config;
  const auto prefill = static_cast<std::uint32_t>(prompt.size() - 1);
  SlowModel slow(bench.model);
  std::vector<Vector> anchors(c.layers);
  for (std::uint32_t t = 0; t < *looked_at.rbegin(); ++t) {
    const SlowModel::Look look = [&](std::uint32_t layer, const Vector&, const Vector& q, const auto& k,
                                     const auto& v) {
      if (t + 1 == prefill) anchors[layer] = q;
      if (looked_at.count(t + 1) == 0) return;
      Segments first = at(prefill + 1);
      first.tokens = t + 1;
      const GivenLayer now(q, k, v, at(t + 1)), then(anchors[layer], k, v, first);
      const std::vector<float>& found = source.seen.at({layer, t + 1});
      for (std::uint32_t h = 0; h < c.q_heads; ++h) {
        const Vec expected = naive_features(layer, now, then, h, {0.1, 0.95}, policy);
        for (int f = 0; f < kFeatures; ++f)
          EXPECT_NEAR(found[h * kFeatures + f], expected[f], 1e-3 * std::max(1.0, std::abs(expected[f])))
              << t + 1 << " tokens, layer " << layer << ", head " << h << ", " << feature_names()[f];
      }
    };
    slow.step(t <= prefill ? prompt[t] : generated[t - prefill - 1], {}, look);
  }
}

class StepFeaturesOf : public ::testing::TestWithParam<BudgetPolicy> {};
INSTANTIATE_TEST_SUITE_P(Policies, StepFeaturesOf,
                         ::testing::Values(BudgetPolicy::fluxion, BudgetPolicy::output, BudgetPolicy::score));

TEST_P(StepFeaturesOf, TheEngineEqualTheirDefinitions) {
  const TemporaryFolder folder;
  Bench bench(tiny_model());
  const std::uint32_t prefill = 150, steps = 3;
  const std::vector<std::int32_t> prompt = random_prompt(prefill + 1, 8);
  const auto source = std::make_shared<ReadFeatures>(folder, GetParam());
  const auto method = make_fluxion(parse_method_spec("fluxion:sinks=16,window=32"), source);
  const DecodeResult result = bench.decode(*method, {prompt}, steps);
  ASSERT_EQ(source->seen.size(), std::size_t{steps} * bench.model.config.layers);
  expect_features(bench, prompt, result.sequences[0].tokens, *source, {151, 152, 153}, GetParam(),
                  [&](std::uint32_t tokens) { return fluxion_segments(prefill, tokens, 16, 32); });
}

// A predictor was trained with a window that is never empty. Of 190 tokens 16 to 144 lie on the host; with 305 the
// block up to 272 follows, which takes all of the prompt that was left, and then the window is 272 to 304.
TEST(FluxionPredictedHeads, SpilledTokensLeaveAWindowBehindThem) {
  const TemporaryFolder folder;
  Bench bench(tiny_model());
  const std::uint32_t prefill = 190;
  const std::vector<std::int32_t> prompt = random_prompt(prefill + 1, 8);
  const auto source = std::make_shared<ReadFeatures>(folder, BudgetPolicy::fluxion);
  const auto method = make_fluxion(parse_method_spec("fluxion:sinks=16,window=32,spill=1"), source);
  const DecodeResult result = bench.decode(*method, {prompt}, 118);
  expect_features(bench, prompt, result.sequences[0].tokens, *source, {191, 305, 306, 308}, BudgetPolicy::fluxion,
                  [&](std::uint32_t tokens) {
                    return tokens <= 305 ? Segments{16, 144, prefill, tokens} : Segments{16, 272, 304, tokens};
                  });
}

}  // namespace
}  // namespace tandem::testing
