// Fluxion with a predictor: the features that the engine computes, step by step, lead to the budgets that the same
// network gives for features computed from a double-precision model.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>

#include "engine/common/error.h"
#include "methods/fluxion/features.h"
#include "methods/fluxion/predictor.h"
#include "methods/fluxion/selector.h"
#include "methods/registry.h"
#include "tests/engine/model/model_folder.h"
#include "tests/engine/runtime/slow_model.h"
#include "tests/engine/runtime/tiny.h"

namespace tandem::testing {
namespace {

using Vector = SlowModel::Vector;

/// A predictor for the tiny model whose three outputs change with every feature.
std::filesystem::path write_predictor(const TemporaryFolder& folder) {
  Json header = Json::object();
  std::string body;
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  const auto add = [&](const char* tensor, const char* type, std::vector<std::uint32_t> shape, const auto& values) {
    const std::size_t begin = body.size();
    body.append(reinterpret_cast<const char*>(values.data()), values.size() * 4);
    header[tensor] = {{"dtype", type}, {"shape", shape}, {"data_offsets", {begin, body.size()}}};
  };
  const auto noise = [&](std::size_t n, float scale) {
    std::vector<float> values(n);
    for (float& x : values) x = scale * normal(random);
    return values;
  };
  std::vector<float> deviation(kFeatures, 3.0f);
  deviation[kHostTokens] = deviation[kDeviceTokens] = 300;
  add("feature.mean", "F32", {41}, std::vector<float>(kFeatures));
  add("feature.std", "F32", {41}, deviation);
  add("heads.bias", "F32", {3}, std::vector<float>{0.75f, 0.06f, -0.1f});
  std::vector<float> heads = noise(48, 1);
  for (std::size_t i = 0; i < heads.size(); ++i) heads[i] *= i < 16 ? 0.15f : i < 32 ? 0.005f : 0.3f;
  add("heads.weight", "F32", {3, 16}, heads);
  add("limits", "F32", {2}, std::vector<float>{0.1f, 0.95f});
  add("model", "I32", {7}, std::vector<std::int32_t>{2, 4, 2, 16, 16, 32, 0});
  add("trunk.0.bias", "F32", {16}, noise(16, 0.2f));
  add("trunk.0.weight", "F32", {16, 41}, noise(16 * 41, 0.3f));
  const std::filesystem::path path = folder.path() / "predictor.safetensors";
  const std::string bytes = safetensors_bytes(header.dump(), body);
  write_bytes(path, bytes);
  return path;
}

std::vector<float> floats(const std::vector<Vector>& rows) {
  std::vector<float> out;
  for (const Vector& row : rows) {
    for (const double x : row) out.push_back(static_cast<float>(x));
  }
  return out;
}

/// One layer of the slow model in f32, and attention over its segments.
struct LayerData {
  std::vector<float> q;
  std::vector<std::vector<float>> keys, values;
  std::vector<const float*> key_rows, value_rows;
  LayerQuery query;

  LayerData(const ModelConfig& c, const Vector& now, const std::vector<std::vector<Vector>>& k,
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

double upper_bound(const Vector& q, const std::vector<Vector>& keys, std::uint32_t begin, std::uint32_t end) {
  double bound = 0;
  for (std::size_t d = 0; d < q.size(); ++d) {
    double best = -INFINITY;
    for (std::uint32_t t = begin; t < end; ++t) best = std::max(best, q[d] * keys[t][d]);
    bound += best;
  }
  return bound;
}

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
    const LayerData data(c, q, keys, values, at);
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
  const SlowModel::Visible visible = [&](std::uint32_t layer, std::uint32_t h, const Vector& q,
                                         const std::vector<Vector>& keys) {
    const Segments at = fluxion_segments(prefill, static_cast<std::uint32_t>(keys.size()), 16, 32);
    std::vector<bool> seen(keys.size());
    for (std::uint32_t t = 0; t < seen.size(); ++t) seen[t] = t < at.sinks || t >= at.window;
    const std::uint32_t group = c.q_heads / c.kv_heads, first = h / group * group;
    const GroupChoice choice =
        choose_granularity(std::span(said[layer]).subspan(first, group), at.host(), SelectorStage::skip);
    const std::uint32_t block = choice.block, keep = choice.keep[h - first];
    budgets.push_back(static_cast<float>(keep) * static_cast<float>(block));
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
  std::sort(budgets.begin(), budgets.end());
  budgets.erase(std::unique(budgets.begin(), budgets.end()), budgets.end());
  EXPECT_GE(budgets.size(), 4u);  // heads and steps differ in what they need
  std::uint64_t flops = 0;
  for (const TraceRecord& r : result.trace.records) flops += std::string(r.name) == "estimate heads" ? r.cost.flops : 0;
  EXPECT_GT(flops, 8u * 2 * predictor.flops(4));  // steps x layers: the network and the features
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
  EXPECT_THROW(make_method("fluxion:heads=/nowhere/predictor.safetensors"), InputError);
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

}  // namespace
}  // namespace tandem::testing
