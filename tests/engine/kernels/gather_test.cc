// Which way a gather takes.
#include "engine/kernels/gather.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// DMA / kernel as measured on an A30: below 1 DMA wins.
GatherCrossover example() {
  return GatherCrossover(
      {{28 << 10, 16, 0.57, 1}, {1 << 10, 16, 0.49, 1}, {1 << 10, 4096, 4.2, 1}, {28 << 10, 4096, 1.29, 1}});
}

TEST(GatherCrossover, TheFasterWayAtThePointsBetweenAndBeyond) {
  const GatherCrossover crossover = example();
  EXPECT_EQ(crossover.choose(1 << 10, 16), GatherWay::dma);
  EXPECT_EQ(crossover.choose(1 << 10, 4096), GatherWay::zero_copy);
  EXPECT_EQ(crossover.choose(28 << 10, 16), GatherWay::dma);
  EXPECT_EQ(crossover.choose(28 << 10, 4096), GatherWay::zero_copy);
  // ln 0.49 + x (ln 4.2 - ln 0.49) = 0 at x = 0.332 of the eight doublings from 16: 101 pieces.
  EXPECT_EQ(crossover.choose(1 << 10, 98), GatherWay::dma);
  EXPECT_EQ(crossover.choose(1 << 10, 104), GatherWay::zero_copy);
  EXPECT_EQ(crossover.choose(28 << 10, 256), GatherWay::dma) << "here it is 0.688: 726 pieces";
  EXPECT_EQ(crossover.choose(28 << 10, 740), GatherWay::zero_copy);
  EXPECT_EQ(crossover.choose(512, 1), GatherWay::dma);
  EXPECT_EQ(crossover.choose(1 << 24, 100000), GatherWay::zero_copy);
  EXPECT_EQ(crossover.choose(0, 0), GatherWay::dma);
}

TEST(GatherCrossover, OnePointHoldsEverywhere) {
  const GatherCrossover crossover({{4096, 8, 2, 1}});
  EXPECT_EQ(crossover.choose(16, 1), GatherWay::zero_copy);
  EXPECT_EQ(crossover.choose(1 << 20, 512), GatherWay::zero_copy);
}

TEST(GatherCrossover, RefusesWhatIsNoGrid) {
  EXPECT_THAT([] { GatherCrossover({}); }, ThrowsMessage<InputError>(HasSubstr("0 points")));
  EXPECT_THAT(
      [] {
        GatherCrossover({{1024, 1, 1, 1}, {2048, 2, 1, 1}});
      },
      ThrowsMessage<InputError>(HasSubstr("2 points for 2 sizes and 2 counts")));
  EXPECT_THROW(GatherCrossover({{1024, 1, 1, 1}, {1024, 1, 1, 1}}), InputError);
  EXPECT_THROW(GatherCrossover({{1024, 1, 0, 1}}), InputError);
}

}  // namespace
}  // namespace tandem
