#include "engine/device/types.h"

#include <gtest/gtest.h>
#include <map>
#include <random>

namespace tandem {
namespace {

TEST(WaitFor, OfALaneOnlyTheLatestEventIsKept) {
  std::vector<Event> after;
  wait_for(after, {});
  EXPECT_TRUE(after.empty());  // done already
  wait_for(after, {2, 5});
  wait_for(after, {2, 5});
  wait_for(after, {2, 4});
  EXPECT_EQ(after, (std::vector<Event>{{2, 5}}));
  wait_for(after, {1, 9});
  wait_for(after, {2, 6});
  EXPECT_EQ(after, (std::vector<Event>{{1, 9}, {2, 6}}));  // as late in the list as if it had been appended
}

TEST(WaitFor, WhatIsKeptImpliesTheRest) {
  std::mt19937 random(4);
  for (int round = 0; round < 500; ++round) {
    std::vector<Event> after;
    std::map<LaneId, std::uint64_t> latest;
    for (int i = 0; i < 40; ++i) {
      const Event event{static_cast<LaneId>(random() % 5), random() % 12};
      wait_for(after, event);
      if (event.valid()) latest[event.lane] = std::max(latest[event.lane], event.value);
      std::map<LaneId, std::uint64_t> kept;
      for (const Event& e : after) EXPECT_TRUE(kept.emplace(e.lane, e.value).second) << "lane " << e.lane << " twice";
      ASSERT_EQ(kept, latest);
    }
  }
}

}  // namespace
}  // namespace tandem
