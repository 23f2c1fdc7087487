#include "engine/kv/block_set.h"

#include <gtest/gtest.h>
#include <random>
#include <set>

namespace tandem {
namespace {

TEST(BlockSet, CountsBlocksAndRuns) {
  std::mt19937 random(3);
  for (const std::uint32_t room : {1u, 63u, 64u, 65u, 200u, 1000u}) {
    BlockSet set(room);
    for (const std::uint32_t adds : {1u, room / 3 + 1, 2 * room}) {
      set.clear();
      EXPECT_EQ(set.count(), 0u);
      EXPECT_EQ(set.runs(), 0u);
      std::vector<std::uint32_t> blocks(adds);
      for (std::uint32_t& block : blocks) block = static_cast<std::uint32_t>(random() % room);
      set.add(blocks);
      const std::set<std::uint32_t> expected(blocks.begin(), blocks.end());
      std::uint32_t runs = 0;
      for (const std::uint32_t block : expected) runs += block == 0 || !expected.contains(block - 1) ? 1 : 0;
      EXPECT_EQ(set.count(), expected.size());
      EXPECT_EQ(set.runs(), runs);
      EXPECT_EQ(set.first(), *expected.begin());
      EXPECT_EQ(set.last(), *expected.rbegin());
      for (std::uint32_t block = 0; block < room; ++block) EXPECT_EQ(set.contains(block), expected.contains(block));
    }
  }
}

}  // namespace
}  // namespace tandem
