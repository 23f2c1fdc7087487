#include "engine/kv/free_slots.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <numeric>
#include <random>
#include <set>
#include <vector>

namespace tandem {
namespace {

std::size_t runs_of(const std::set<std::uint32_t>& slots) {
  return static_cast<std::size_t>(
      std::count_if(slots.begin(), slots.end(), [&](std::uint32_t s) { return s == 0 || !slots.contains(s - 1); }));
}

TEST(FreeSlots, HandsOutTheLowestAsASetDoes) {
  std::mt19937 random(6);
  for (int history = 0; history < 50; ++history) {
    constexpr std::uint32_t kSlots = 64;
    FreeSlots free;
    std::set<std::uint32_t> model, taken;
    for (std::uint32_t s = 0; s < kSlots; ++s) taken.insert(s);
    for (int i = 0; i < 400; ++i) {
      // Histories lean towards giving back in their first half and towards taking in the second, in turns.
      const bool gives = random() % 4 < (i / 50 % 2 == 0 ? 3u : 1u);
      if (gives && !taken.empty()) {
        const std::uint32_t slot = *std::next(taken.begin(), static_cast<std::ptrdiff_t>(random() % taken.size()));
        taken.erase(slot);
        model.insert(slot);
        free.put(slot);
      } else if (!gives && !model.empty()) {
        const std::uint32_t slot = free.take();
        ASSERT_EQ(slot, *model.begin());
        model.erase(model.begin());
        taken.insert(slot);
      }
      ASSERT_EQ(free.size(), model.size());
      ASSERT_EQ(free.empty(), model.empty());
      ASSERT_EQ(free.runs(), runs_of(model));  // runs that touch are one
    }
    while (!model.empty()) {
      ASSERT_EQ(free.take(), *model.begin());
      model.erase(model.begin());
    }
    EXPECT_TRUE(free.empty());
    EXPECT_THROW(free.take(), LogicError);
  }
}

TEST(FreeSlots, WhatComesBackInAnyOrderIsOneRun) {
  std::vector<std::uint32_t> slots(1000);
  std::iota(slots.begin(), slots.end(), 5u);
  std::mt19937 random(1);
  for (int order = 0; order < 3; ++order) {  // ascending, descending, any
    if (order == 1) std::reverse(slots.begin(), slots.end());
    if (order == 2) std::shuffle(slots.begin(), slots.end(), random);
    FreeSlots free;
    for (const std::uint32_t slot : slots) free.put(slot);
    EXPECT_EQ(free.runs(), 1u);
    for (std::uint32_t slot = 5; slot < 1005; ++slot) ASSERT_EQ(free.take(), slot);
  }
}

}  // namespace
}  // namespace tandem
