#include "engine/runtime/workload.h"

#include <algorithm>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iterator>
#include <numeric>

#include "engine/common/error.h"
#include "engine/common/paths.h"
#include "engine/kernels/skewed.h"
#include "engine/kernels/topk.h"

namespace tandem {
namespace {

const ModelShape kShape{.layers = 8, .hidden = 64, .q_heads = 8, .kv_heads = 2, .head_dim = 16};

Workload one(HeadWorkload head) {
  return {"test", "made up", {{head}}};
}

TEST(WorkloadFigures, InverseFunctionsAreInverse) {
  EXPECT_DOUBLE_EQ(share_above_mean(0), 0.5);
  for (const double share : {0.4, 0.1, 0.01, 0.001})
    EXPECT_NEAR(share_above_mean(concentration_of(share)), share, 1e-9);
  EXPECT_EQ(concentration_of(0.7), 0);
  for (const double fraction : {0.02, 0.125, 0.5}) {
    EXPECT_NEAR(overlap_of(0, fraction), fraction, 1e-5) << "independent choices meet by chance";
    EXPECT_NEAR(overlap_of(1, fraction), 1, 2e-3);
    for (const double correlation : {0.2, 0.6, 0.95})
      EXPECT_NEAR(correlation_of(overlap_of(correlation, fraction), fraction), correlation, 1e-6);
    EXPECT_EQ(correlation_of(0, fraction), 0);
  }
}

TEST(ScoreProcess, ChoicesOverlapAsTheWorkloadSays) {
  constexpr std::uint32_t kBlocks = 4000, kKeep = 400, kPlaces = 12;
  for (const double group : {0.0, 0.5, 0.9}) {
    for (const double step : {0.0, 0.8}) {
      const Workload workload = one({1, group, step});
      const ScoreProcess process(workload, kShape);
      const auto chosen = [&](const ScorePlace& place) {
        std::vector<float> scores(std::size_t{kShape.group()} * kBlocks);
        process.block_scores(place, kBlocks, scores.data());
        std::vector<std::vector<std::uint32_t>> sets(kShape.group(), std::vector<std::uint32_t>(kKeep));
        for (std::uint32_t g = 0; g < kShape.group(); ++g)
          top_k(scores.data() + std::size_t{g} * kBlocks, kBlocks, kKeep, sets[g].data());
        return sets;
      };
      const auto shared = [](const std::vector<std::uint32_t>& a, const std::vector<std::uint32_t>& b) {
        std::vector<std::uint32_t> both;
        std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
        return double(both.size()) / kKeep;
      };
      double heads = 0, steps = 0;
      for (std::uint32_t sequence = 0; sequence < kPlaces; ++sequence) {
        const auto now = chosen({sequence, 3, 1, 7}), next = chosen({sequence, 3, 1, 8});
        EXPECT_EQ(now, chosen({sequence, 3, 1, 7}));
        heads += (shared(now[0], now[1]) + shared(now[2], now[3])) / 2 / kPlaces;
        steps += (shared(now[0], next[0]) + shared(now[3], next[3])) / 2 / kPlaces;
      }
      EXPECT_NEAR(heads, overlap_of(group, 0.1), 0.02) << group << " " << step;
      EXPECT_NEAR(steps, overlap_of(step, 0.1), 0.02) << group << " " << step;
    }
  }
}

/// The lasting part turns evenly: two steps of the same turn have the correlation of the angle between them.
TEST(ScoreProcess, WhatLastsTurnsOver) {
  constexpr std::uint32_t kItems = 20000;
  const Workload workload = one({1, 0.5, 0.95, 40});
  const ScoreProcess process(workload, kShape);
  const auto scores = [&](std::uint32_t step) {
    std::vector<float> values(std::size_t{kShape.group()} * kItems);
    process.block_scores({3, 1, 0, step}, kItems, values.data());
    return values;
  };
  const auto correlation = [](const std::vector<float>& a, const std::vector<float>& b) {
    double ab = 0, aa = 0, bb = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      ab += double{a[i]} * double{b[i]};
      aa += double{a[i]} * double{a[i]};
      bb += double{b[i]} * double{b[i]};
    }
    EXPECT_NEAR(aa / double(a.size()), 1, 0.03);
    return ab / std::sqrt(aa * bb);
  };
  const std::vector<float> prompt = scores(0xFFFFFFFFu);  // before the first step
  for (const std::uint32_t age : {1u, 10u, 30u})
    EXPECT_NEAR(correlation(prompt, scores(age - 1)), 0.95 * std::cos(age / 40.0 * M_PI / 2), 0.02) << age;
  EXPECT_NEAR(correlation(prompt, scores(79)), 0, 0.02);
  EXPECT_NEAR(correlation(scores(35), scores(43)), 0.95 * std::cos(4 / 40.0 * M_PI / 2) * std::cos(4 / 40.0 * M_PI / 2),
              0.02)
      << "from one turn into the next";
}

TEST(ScoreProcess, SalientSharesFollowFromTheConcentration) {
  constexpr std::uint32_t kTokens = 20000;
  for (const double share : {0.3, 0.05, 0.01}) {
    for (const double group : {0.0, 1.0}) {  // heads of a group choose apart, or all the same
      const Workload workload = one({concentration_of(share), group, 1});
      const ScoreProcess process(workload, kShape);
      const std::uint32_t kept = process.salient_tokens({1, 2, 0, 0}, 0, kTokens, 1);
      const double expected = group == 1 ? share : 1 - std::pow(1 - share, kShape.group());
      EXPECT_NEAR(double(kept) / kTokens, expected, 0.15 * expected);
      // A token's fate depends neither on the range that is asked for nor on the step.
      std::uint32_t in_parts = 0;
      for (std::uint32_t first = 0; first < kTokens; first += 777)
        in_parts += process.salient_tokens({1, 2, 0, 5}, first, std::min(777u, kTokens - first), 1);
      EXPECT_EQ(in_parts, kept);
      EXPECT_EQ(process.salient_tokens({1, 2, 0, 0}, 0, kTokens, 0), kTokens) << "times 0: all";
      EXPECT_LT(process.salient_tokens({1, 2, 0, 0}, 0, kTokens, 3), kept);
    }
  }
}

TEST(ScoreProcess, TokensNearTheBestAreAsManyAsOfTokensDrawnOneByOne) {
  constexpr std::uint32_t kTokens = 4000, kPlaces = 250;
  constexpr double kAlpha = 4;
  for (const double concentration : {1.5, 3.0, 5.0}) {
    const Workload workload = one({concentration, 0.5, 0.9});
    const ScoreProcess process(workload, kShape);
    const std::uint32_t group = kShape.group();
    double expected = 0, counted = 0;
    for (std::uint32_t sequence = 0; sequence < kPlaces; ++sequence) {
      const ScorePlace place{sequence, 2, 1, 3};
      std::vector<float> scores(std::size_t{group} * kTokens);
      process.block_scores(place, kTokens, scores.data());
      for (float& score : scores) score *= static_cast<float>(concentration);
      for (std::uint32_t g = 0; g < group; ++g)
        expected += tokens_near_the_best(scores.data() + std::size_t{g} * kTokens, 1, kTokens, kAlpha);
      counted += process.tokens_near_best(place, kTokens, kAlpha);
    }
    EXPECT_NEAR(counted, expected, 0.08 * expected) << concentration;
    EXPECT_EQ(process.tokens_near_best({0, 2, 1, 3}, kTokens, 1e9), double{kTokens} * group) << "all";
    EXPECT_GE(process.tokens_near_best({0, 2, 1, 3}, kTokens, 0), group) << "the best themselves";
    EXPECT_EQ(process.tokens_near_best({0, 2, 1, 3}, 1, 0), group);
  }
  const Workload alike = one({0, 0.5, 0.9});
  EXPECT_EQ(ScoreProcess(alike, kShape).tokens_near_best({0, 0, 0, 0}, 7, 0), 7.0 * kShape.group());
}

TEST(Workload, HeadsMapByRelativePlace) {
  Workload workload{"test", "made up", {}};
  for (int layer = 0; layer < 4; ++layer) {
    workload.layers.push_back({});
    for (int head = 0; head < 2; ++head) workload.layers.back().push_back({layer + head / 10.0, 0, 0});
  }
  EXPECT_EQ(workload.at(kShape, 0, 0).concentration, 0);
  EXPECT_EQ(workload.at(kShape, 7, 7).concentration, 3.1);
  EXPECT_EQ(workload.at(kShape, 4, 3).concentration, 2);
}

TEST(Workload, ReadsBackWhatItWrites) {
  const Workload workload{"test", "made up", {{{1.25, 0.5, 0.1}, {0, 0, 1}}, {{3, 0.25, 0.75}}}};
  const Workload back = parse_workload(workload_to_json(workload), "w.json");
  EXPECT_EQ(workload_to_json(back), workload_to_json(workload));
  EXPECT_EQ(back.layers[1][0].group, 0.25);
  std::ifstream shipped(data_path("hardware/workloads/published.json"));
  const std::string text{std::istreambuf_iterator<char>(shipped), std::istreambuf_iterator<char>()};
  EXPECT_EQ(parse_workload(text, "published.json").name, "published");
}

TEST(Workload, MistakesAreSentences) {
  const auto error = [](const std::string& text) {
    try {
      parse_workload(text, "w.json");
    } catch (const InputError& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  using ::testing::HasSubstr;
  EXPECT_THAT(error("{"), HasSubstr("w.json: not valid JSON from byte 2 of 1 on"));
  EXPECT_THAT(error(R"({"name":"a","source":"b"})"), HasSubstr("layers"));
  EXPECT_THAT(error(R"({"name":"a","source":"b","layers":[]})"), HasSubstr("'layers' is empty"));
  EXPECT_THAT(error(R"({"name":"a","source":"b","layers":[[]]})"), HasSubstr("layers[0] has no heads"));
  EXPECT_THAT(error(R"({"name":"a","source":"b","layers":[[{"concentration":1,"group":1.5,"step":0}]]})"),
              HasSubstr("layers[0][0].group is 1.5"));
}

}  // namespace
}  // namespace tandem
