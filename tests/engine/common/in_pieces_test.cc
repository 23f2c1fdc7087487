#include "engine/common/in_pieces.h"

#include <atomic>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdexcept>
#include <vector>

namespace tandem {
namespace {

TEST(InPieces, DoesEveryPartOnce) {
  for (const std::size_t total : {0, 1, 7, 8, 9, 1000}) {
    for (const std::size_t piece : {1, 8, 2000}) {
      std::vector<std::atomic<int>> times(total);
      in_pieces(total, piece, [&](std::size_t from, std::size_t size) {
        EXPECT_LE(size, piece);
        for (std::size_t i = from; i < from + size; ++i) ++times.at(i);
      });
      for (const auto& time : times) EXPECT_EQ(time, 1);
    }
  }
}

TEST(InPieces, ThrowsWhatOneOfThemThrows) {
  EXPECT_THAT(
      [] {
        in_pieces(100, 1, [](std::size_t i, std::size_t) {
          if (i % 7 == 3) throw std::runtime_error("no");
        });
      },
      ::testing::ThrowsMessage<std::runtime_error>(::testing::StrEq("no")));
}

}  // namespace
}  // namespace tandem
