#include "engine/device/copy_list.h"

#include <array>
#include <gtest/gtest.h>

namespace tandem {
namespace {

TEST(CopyList, JoinsNeighboursOfOneBuffer) {
  std::array<char, 64> to{}, from{};
  CopyList list;
  CopyList::Between between = list.between(to.data(), from.data());
  between.add(0, 8, 8);
  between.add(8, 16, 8);
  EXPECT_EQ(list.pieces(), 1u);
  between.add(16, 32, 8);  // neighbours at one end only
  EXPECT_EQ(list.pieces(), 2u);
  between.add(40, 40, 0);
  EXPECT_EQ(list.pieces(), 2u) << "nothing is no piece";
  list.between(to.data(), from.data()).add(24, 40, 8);
  EXPECT_EQ(list.pieces(), 2u) << "the same buffers";
}

// Two allocations may lie side by side; a copy over both is refused.
TEST(CopyList, DoesNotReachFromOneBufferIntoTheNext) {
  std::array<char, 64> to{}, from{};
  CopyList list;
  list.between(to.data(), from.data()).add(0, 0, 32);
  list.between(to.data() + 32, from.data() + 32).add(0, 0, 32);
  EXPECT_EQ(list.pieces(), 2u);
}

}  // namespace
}  // namespace tandem
