// The statistics on scores whose answers are known by hand.
#include "eval/heads/head_stats.h"

#include <cmath>
#include <gtest/gtest.h>

namespace tandem::testing {
namespace {

using namespace eval;

TEST(HeadStats, SoftmaxOfKnownScores) {
  const std::vector<float> scores = {0, std::log(3.0f), -INFINITY};
  const std::vector<double> weights = softmax(scores);
  EXPECT_NEAR(weights[0], 0.25, 1e-7);
  EXPECT_NEAR(weights[1], 0.75, 1e-7);
  EXPECT_EQ(weights[2], 0);
}

TEST(HeadStats, ScoresAreScaledDotProducts) {
  const std::vector<float> q = {1, 2, 3, 4, 5, 6}, k = {1, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1};
  const std::vector<float> scores = attention_scores(q.data(), k.data(), 2, 6);
  EXPECT_NEAR(scores[0], 7 / std::sqrt(6.0), 1e-6);
  EXPECT_NEAR(scores[1], 21 / std::sqrt(6.0), 1e-6);
}

TEST(HeadStats, RankedBlocksTakeTheHeaviestFirst) {
  const std::vector<double> weights = {0.05, 0.30, 0.30, 0.05, 0.10, 0.10, 0.10};
  const RankedBlocks tokens = rank_blocks(weights, 1);
  EXPECT_EQ(tokens.order, (std::vector<std::uint32_t>{1, 2, 4, 5, 6, 0, 3}));  // ties in order of position
  EXPECT_EQ(tokens.needed(0.5), 2u);
  EXPECT_EQ(tokens.needed(0.75), 4u);
  const RankedBlocks pairs = rank_blocks(weights, 2);  // 0.35 0.35 0.20 0.10, the last of one token
  EXPECT_EQ(pairs.order, (std::vector<std::uint32_t>{0, 1, 2, 3}));
  EXPECT_EQ(pairs.needed(0.8), 3u);
  EXPECT_EQ(pairs.tokens_of(2), 2u);
  EXPECT_EQ(pairs.tokens_of(3), 1u);
  EXPECT_EQ(pairs.needed(1.5), 4u);  // all there is
}

TEST(HeadStats, LargerBlocksNeverNeedFewerTokens) {
  std::vector<double> weights(1000);
  double sum = 0;
  for (std::size_t t = 0; t < weights.size(); ++t) sum += weights[t] = 1.0 / double(1 + (t * 617) % 1000);
  for (double& w : weights) w /= sum;
  for (const double target : kMassTargets) {
    std::uint32_t before = 0;
    for (const std::uint32_t block : kBudgetBlocks) {
      const RankedBlocks ranked = rank_blocks(weights, block);
      std::uint32_t tokens = 0;
      for (std::uint32_t i = 0; i < ranked.needed(target); ++i) tokens += ranked.tokens_of(ranked.order[i]);
      EXPECT_GE(tokens, before) << block;
      if (block == kBudgetBlocks[1]) {
        EXPECT_GT(tokens, before);  // the weights are scattered: blocks carry light tokens along
      }
      before = tokens;
    }
  }
}

TEST(HeadStats, OverlapCountsSharedChoices) {
  std::vector<float> a(32), b(32);  // the top 1/8 is four of them
  for (const std::size_t t : {1, 5, 9, 13}) a[t] = 1;
  for (const std::size_t t : {5, 9, 20, 21}) b[t] = 1;
  EXPECT_DOUBLE_EQ(top_overlap(a, b), 0.5);
  EXPECT_DOUBLE_EQ(top_overlap(a, a), 1);
  b.assign(32, 0);
  b[31] = b[30] = b[29] = b[28] = 2;
  EXPECT_DOUBLE_EQ(top_overlap(a, b), 0);
  EXPECT_TRUE(std::isnan(top_overlap({}, {})));
}

TEST(HeadStats, BlockBoundsLeaveOutThePartlyFilledBlock) {
  std::vector<float> keys(2 * (2 * kOverlapBlock + 5), 0);
  keys[2 * 40] = 3;       // block 1, channel 0
  keys[2 * 50 + 1] = -4;  // block 1, channel 1
  keys[2 * 66] = 100;     // in the partly filled block
  const std::vector<float> q = {2, -1};
  const std::vector<float> bounds = block_bounds(q.data(), keys.data(), 2 * kOverlapBlock + 5, 2);
  EXPECT_EQ(bounds, (std::vector<float>{0, 10}));
}

TEST(HeadStats, ValuesAreRenormalisedToTheChosen) {
  const std::vector<double> weights = {0.5, 0.3, 0.2};
  const std::vector<float> values = {1, 0, 0, 1, 1, 1};
  EXPECT_NEAR(weighted_values(weights, values.data(), 2)[0], 0.7, 1e-12);
  const std::vector<std::uint32_t> chosen = {1, 2};
  const std::vector<double> out = weighted_values(weights, values.data(), 2, chosen);
  EXPECT_NEAR(out[0], 0.4, 1e-7);
  EXPECT_NEAR(out[1], 1.0, 1e-7);
}

TEST(HeadStats, CosineOfKnownVectors) {
  const std::vector<float> a = {3, 4}, b = {-4, 3}, c = {6, 8}, none = {0, 0};
  EXPECT_NEAR(cosine(a, b), 0, 1e-12);
  EXPECT_NEAR(cosine(a, c), 1, 1e-12);
  EXPECT_TRUE(std::isnan(cosine(a, none)));
}

}  // namespace
}  // namespace tandem::testing
