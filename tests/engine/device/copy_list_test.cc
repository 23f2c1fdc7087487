#include "engine/device/copy_list.h"

#include <array>
#include <gtest/gtest.h>

namespace tandem {
namespace {

TEST(CopyList, JoinsNeighboursOfOneBuffer) {
  std::array<char, 64> to{}, from{};
  CopyList list;
  const auto add = [&](std::size_t to_byte, std::size_t from_byte, std::size_t bytes) {
    list.add(to.data(), to_byte, from.data(), from_byte, bytes);
  };
  add(0, 8, 8);
  add(8, 16, 8);
  EXPECT_EQ(list.pieces(), 1u);
  add(16, 32, 8);  // neighbours at one end only
  EXPECT_EQ(list.pieces(), 2u);
  add(40, 40, 0);
  EXPECT_EQ(list.pieces(), 2u) << "nothing is no piece";
  add(24, 40, 8);
  EXPECT_EQ(list.pieces(), 2u) << "the same buffers";
}

// Two allocations may lie side by side; a copy over both is refused.
TEST(CopyList, DoesNotReachFromOneBufferIntoTheNext) {
  std::array<char, 64> to{}, from{};
  CopyList list;
  list.add(to.data(), 0, from.data(), 0, 32);
  list.add(to.data() + 32, 0, from.data() + 32, 0, 32);
  EXPECT_EQ(list.pieces(), 2u);
}

}  // namespace
}  // namespace tandem
