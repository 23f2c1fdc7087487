// Fluxion's selector against exhaustive search, and its edges.
#include "methods/fluxion/selector.h"

#include <cmath>
#include <gtest/gtest.h>
#include <random>

namespace tandem {
namespace {

/// Eq. 3 written out, in long double: the volume of a group at a block size.
long double printed_volume(const std::vector<HeadProperties>& group, std::uint32_t tokens, std::uint32_t block,
                           bool skip) {
  long double sum = 0;
  for (const HeadProperties& head : group) {
    if (skip && head.streaming) continue;
    long double budget = head.budget;
    for (std::uint32_t b = block; b > 1; b /= 2) budget += head.slope;
    sum += budget < 0 ? 0 : budget > 1 ? 1 : budget;
  }
  return 2.0L * tokens / block + 2.0L * tokens * sum;
}

std::vector<HeadProperties> random_group(std::mt19937& random) {
  std::vector<HeadProperties> group(1 + random() % 8);
  std::uniform_real_distribution<float> budget(-0.02f, 0.4f), slope(-0.01f, 0.06f);
  for (HeadProperties& head : group) head = {budget(random), slope(random), random() % 3 == 0};
  return group;
}

TEST(FluxionSelector, EqualsExhaustiveSearch) {
  std::mt19937 random(1);
  std::uint32_t seen[4] = {};
  for (int i = 0; i < 20000; ++i) {
    const std::vector<HeadProperties> group = random_group(random);
    const auto tokens = static_cast<std::uint32_t>(16 + random() % 200000);
    const bool skip = random() % 2 == 0;
    const GroupChoice choice = choose_granularity(group, tokens, skip ? SelectorStage::skip : SelectorStage::dynamic);
    bool all_streaming = true;
    for (const HeadProperties& head : group) all_streaming = all_streaming && head.streaming;
    ASSERT_EQ(choice.retrieval, !(skip && all_streaming));
    if (!choice.retrieval) {
      EXPECT_EQ(choice.keep, std::vector<std::uint32_t>(group.size()));
      EXPECT_EQ(choice.volume, 0);
      continue;
    }
    long double least = INFINITY;
    for (const std::uint32_t block : {16u, 32u, 64u, 128u})
      least = std::min(least, printed_volume(group, tokens, block, skip));
    EXPECT_NEAR(static_cast<double>(printed_volume(group, tokens, choice.block, skip) - least), 0, 1e-6 * tokens);
    EXPECT_NEAR(choice.volume, static_cast<double>(least), 1e-6 * tokens);
    ++seen[choice.block == 16 ? 0 : choice.block == 32 ? 1 : choice.block == 64 ? 2 : 3];
    for (std::size_t h = 0; h < group.size(); ++h) {
      if (skip && group[h].streaming) {
        EXPECT_EQ(choice.keep[h], 0u);
        continue;
      }
      const double blocks = budget_at(group[h], choice.block) * tokens / choice.block;
      EXPECT_GE(choice.keep[h] + 1e-5 + 1.2e-7 * blocks, blocks);
      EXPECT_LT(choice.keep[h], blocks + 1);
    }
  }
  for (const std::uint32_t count : seen) EXPECT_GT(count, 100u);  // every block size is the best one somewhere
}

TEST(FluxionSelector, BudgetsAreClampedBeforeVolumesAreCompared) {
  // Unclamped, the first head's budget would fall by 2.1 from 16 to 128 and outweigh the second one's rise.
  const std::vector<HeadProperties> group = {{3.0f, -0.3f, false}, {0.0f, 0.1f, false}};
  EXPECT_EQ(budget_at(group[0], 16), 1);
  EXPECT_NEAR(budget_at(group[0], 128), 0.9, 1e-6);
  // 2/16 + 2 (1 + 0.4), 2/32 + 2 (1 + 0.5), 2/64 + 2 (1 + 0.6), 2/128 + 2 (0.9 + 0.7)
  EXPECT_EQ(choose_granularity(group, 1024, SelectorStage::skip).block, 16u);
  EXPECT_EQ(budget_at({-0.5f, 0.0f, false}, 16), 0);
}

TEST(FluxionSelector, OfEqualVolumesTheSmallerBlockWins) {
  // 2 L / 16 + 2 L 4 k = 2 L / 32 + 2 L 5 k where k = 1 / 32.
  const std::vector<HeadProperties> group = {{0.0f, 0.03125f, false}};
  EXPECT_EQ(volume_at(group, 4096, 16, SelectorStage::skip), volume_at(group, 4096, 32, SelectorStage::skip));
  EXPECT_EQ(choose_granularity(group, 4096, SelectorStage::skip).block, 16u);
  // The same between 64 and 128, where k = 1 / 128.
  const std::vector<HeadProperties> coarse = {{0.0f, 0.0078125f, false}};
  EXPECT_EQ(volume_at(coarse, 4096, 64, SelectorStage::skip), volume_at(coarse, 4096, 128, SelectorStage::skip));
  EXPECT_EQ(choose_granularity(coarse, 4096, SelectorStage::skip).block, 64u);
}

TEST(FluxionSelector, ABudgetsRoundingIsNoBlock) {
  // As f32 these are a little more than the decimal number; of 1 nothing is left out.
  const std::vector<HeadProperties> group = {{0.05f, 0, false}, {0.1f, 0, false}, {1, 0, false}, {0, 0, false}};
  EXPECT_EQ(choose_granularity(group, 32000, SelectorStage::fixed16).keep,
            (std::vector<std::uint32_t>{100, 200, 2000, 0}));
  EXPECT_EQ(choose_granularity(group, 32001, SelectorStage::fixed16).keep,
            (std::vector<std::uint32_t>{101, 201, 2001, 0}));
  EXPECT_EQ(choose_granularity(group, 4'000'000, SelectorStage::fixed16).keep,
            (std::vector<std::uint32_t>{12500, 25000, 250000, 0}));
}

TEST(FluxionSelector, StagesFixTheBlockOrKeepStreamingHeads) {
  const std::vector<HeadProperties> group = {{0.05f, 0.0f, false}, {0.01f, 0.0f, true}};
  const GroupChoice fixed16 = choose_granularity(group, 3200, SelectorStage::fixed16);
  const GroupChoice fixed32 = choose_granularity(group, 3200, SelectorStage::fixed32);
  const GroupChoice dynamic = choose_granularity(group, 3200, SelectorStage::dynamic);
  const GroupChoice skip = choose_granularity(group, 3200, SelectorStage::skip);
  EXPECT_EQ(fixed16.block, 16u);
  EXPECT_EQ(fixed16.keep, (std::vector<std::uint32_t>{10, 2}));
  EXPECT_EQ(fixed32.block, 32u);
  EXPECT_EQ(fixed32.keep, (std::vector<std::uint32_t>{5, 1}));
  EXPECT_EQ(dynamic.block, 128u);
  EXPECT_EQ(dynamic.keep, (std::vector<std::uint32_t>{2, 1}));
  EXPECT_EQ(skip.keep, (std::vector<std::uint32_t>{2, 0}));
  EXPECT_NEAR(skip.volume, 2 * 3200 / 128.0 + 2 * 3200 * 0.05, 1e-3);
  EXPECT_TRUE(choose_granularity(std::vector<HeadProperties>{{1, 0, true}}, 64, SelectorStage::dynamic).retrieval);
  EXPECT_FALSE(choose_granularity(std::vector<HeadProperties>{{1, 0, true}}, 64, SelectorStage::skip).retrieval);
}

// What a predictor says of a head that needs one block of hundreds may round to none, or be below 0.
TEST(FluxionSelector, AHeadThatDoesNotStreamGetsTheLeast) {
  const std::vector<HeadProperties> group = {{-0.1f, 0.0f, false}, {0.1f, 0.0f, false}, {-0.1f, 0.0f, true}};
  for (const SelectorStage stage :
       {SelectorStage::skip, SelectorStage::dynamic, SelectorStage::fixed16, SelectorStage::fixed32}) {
    const GroupChoice none = choose_granularity(group, 4096, stage), least = choose_granularity(group, 4096, stage, 1);
    EXPECT_EQ(least.block, none.block);
    EXPECT_EQ(least.volume, none.volume);
    EXPECT_EQ(none.keep[0], 0u);
    EXPECT_EQ(least.keep, (std::vector<std::uint32_t>{1, none.keep[1], 0}));
  }
  EXPECT_EQ(choose_granularity(group, 40, SelectorStage::fixed32, 5).keep, (std::vector<std::uint32_t>{2, 2, 0}));
}

}  // namespace
}  // namespace tandem
