#include "engine/runtime/score_process.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <iterator>
#include <numeric>

#include "engine/common/drawing.h"
#include "engine/kernels/topk.h"
#include "engine/mechanisms/partial_key_index/kernels/skewed.h"

namespace tandem {
namespace {

const ModelShape kSmallShape{.layers = 8, .hidden = 64, .q_heads = 8, .kv_heads = 2, .head_dim = 16};

Workload one(HeadWorkload head) {
  return {"test", "made up", {{head}}};
}

TEST(ScoreProcess, ChoicesOverlapAsTheWorkloadSays) {
  constexpr std::uint32_t kBlocks = 4000, kKeep = 400, kPlaces = 12;
  for (const double group : {0.0, 0.5, 0.9}) {
    for (const double step : {0.0, 0.8}) {
      const Workload workload = one({1, group, step});
      const ScoreProcess process(workload, kSmallShape);
      const auto chosen = [&](const ScorePlace& place) {
        std::vector<float> scores(std::size_t{kSmallShape.group()} * kBlocks);
        process.block_scores(place, kBlocks, scores.data());
        std::vector<std::vector<std::uint32_t>> sets(kSmallShape.group(), std::vector<std::uint32_t>(kKeep));
        for (std::uint32_t g = 0; g < kSmallShape.group(); ++g)
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

/// Predictions depend on every bit: each item's draws one by one, by the rule.
TEST(ScoreProcess, ScoresAreTheseToTheLastBit) {
  const Workload workload = one({1, 0.4, 0.9, 8.7});
  const ScoreProcess process(workload, kSmallShape);
  const auto normal = [](std::uint64_t key, std::uint32_t item) {
    const std::uint64_t level = mix64(key ^ mix64(item / 5)) >> (item % 5 * 12) & 4095;
    return static_cast<float>(normal_quantile_within(12, (double(level) + 0.5) / 4096));
  };
  constexpr std::uint32_t kSequence = 5, kLayer = 6, kHead = 1, kStep = 20, kItems = 700;
  const auto key = [&](std::uint64_t head, std::uint64_t part) {
    return mix64(mix64(mix64(std::uint64_t{kSequence} << 32 | kLayer) ^ kHead) ^ (head << 40 | part));
  };
  std::vector<float> scores(std::size_t{kSmallShape.group()} * kItems);
  process.block_scores({kSequence, kLayer, kHead, kStep}, kItems, scores.data());
  const double turns = 21 / 8.7, angle = (turns - 2) * M_PI / 2;
  const auto lasting = [&](std::uint64_t head, std::uint64_t part, std::uint32_t item) {
    const std::uint64_t first = key(head, part);
    return static_cast<float>(std::cos(angle)) * normal(mix64(first + 2), item) +
           static_cast<float>(std::sin(angle)) * normal(mix64(first + 3), item);
  };
  const auto weight = [](double variance) { return static_cast<float>(std::sqrt(variance)); };
  for (std::uint32_t g = 0; g < kSmallShape.group(); ++g) {
    for (std::uint32_t i = 0; i < kItems; i += g + 1) {
      float score = weight(0.9 * 0.4) * lasting(0, 3, i);
      score += weight(0.9 * (1 - 0.4)) * lasting(1 + g, 2, i);
      score += weight((1 - 0.9) * 0.4) * normal(key(0, (16 + kStep * 4) | 1), i);
      score += weight((1 - 0.9) * (1 - 0.4)) * normal(key(1 + g, 16 + kStep * 4), i);
      ASSERT_EQ(scores[std::size_t{g} * kItems + i], score) << g << " " << i;
    }
  }
}

/// The lasting part turns evenly: two steps of the same turn have the correlation of the angle between them.
TEST(ScoreProcess, WhatLastsTurnsOver) {
  constexpr std::uint32_t kItems = 20000;
  const Workload workload = one({1, 0.5, 0.95, 40});
  const ScoreProcess process(workload, kSmallShape);
  const auto scores = [&](std::uint32_t step) {
    std::vector<float> values(std::size_t{kSmallShape.group()} * kItems);
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
      const ScoreProcess process(workload, kSmallShape);
      const std::uint32_t kept = process.salient_tokens({1, 2, 0, 0}, 0, kTokens, 1);
      const double expected = group == 1 ? share : 1 - std::pow(1 - share, kSmallShape.group());
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
    const ScoreProcess process(workload, kSmallShape);
    const std::uint32_t group = kSmallShape.group();
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
  EXPECT_EQ(ScoreProcess(alike, kSmallShape).tokens_near_best({0, 0, 0, 0}, 7, 0), 7.0 * kSmallShape.group());
}

}  // namespace
}  // namespace tandem
