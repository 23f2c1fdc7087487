#include "engine/kv/kv_store.h"

#include <gtest/gtest.h>
#include <map>
#include <random>
#include <set>
#include <tuple>

#include "engine/common/error.h"
#include "tests/engine/runtime/tiny.h"

namespace tandem::testing {
namespace {

constexpr KvShape kShape{2, 2, 16};

struct Store {
  std::unique_ptr<Device> device = sim();
  KvStore kv{*device, kShape, {kShape.slot_bytes() * 64, kShape.slot_bytes() * 64}};
  std::vector<Event> after;
};

TEST(KvStore, GrowsByPagesAndFreesThem) {
  Store s;
  const SequenceId a = s.kv.create();
  s.kv.grow(a, 17, s.after);
  EXPECT_EQ(s.kv.tokens(a), 17u);
  EXPECT_EQ(s.kv.bytes(a, Tier::device), 4 * kShape.slot_bytes());  // two blocks in each of two layers
  s.kv.grow(a, 15, s.after);
  EXPECT_EQ(s.kv.bytes(a, Tier::device), 4 * kShape.slot_bytes());
  s.kv.grow(a, 1, s.after);
  EXPECT_EQ(s.kv.bytes(a, Tier::device), 6 * kShape.slot_bytes());
  s.kv.destroy(a);
  EXPECT_EQ(s.kv.bytes_in_use(Tier::device), 0u);
}

TEST(KvStore, AForkSharesPagesUntilItWrites) {
  Store s;
  const SequenceId a = s.kv.create();
  s.kv.grow(a, 20, s.after);
  const SequenceId b = s.kv.fork(a);
  EXPECT_EQ(s.kv.bytes_in_use(Tier::device), 4 * kShape.slot_bytes());
  EXPECT_THROW(s.kv.grow(b, 1, s.after), LogicError);  // the last page is shared
  const std::vector<SlotCopy> copies = s.kv.privatise_tail(b, s.after);
  ASSERT_EQ(copies.size(), 2u);  // one page per layer
  for (std::uint32_t layer = 0; layer < 2; ++layer) {
    EXPECT_EQ(s.kv.slot(a, layer, 0, Tier::device), s.kv.slot(b, layer, 0, Tier::device));
    EXPECT_EQ(copies[layer].from, s.kv.slot(a, layer, 1, Tier::device));
    EXPECT_EQ(copies[layer].to, s.kv.slot(b, layer, 1, Tier::device));
  }
  s.kv.grow(b, 1, s.after);
  EXPECT_TRUE(s.kv.privatise_tail(b, s.after).empty());
  s.kv.destroy(a);
  EXPECT_EQ(s.kv.bytes_in_use(Tier::device), 4 * kShape.slot_bytes());
  s.kv.destroy(b);
  EXPECT_EQ(s.kv.bytes_in_use(Tier::device), 0u);
}

TEST(KvStore, AForkLacksWhatWasDropped) {
  Store s;
  const SequenceId a = s.kv.create();
  s.kv.grow(a, 3 * kPageTokens, s.after);
  s.kv.drop(a, 0, {1, 2}, Tier::device, {});
  const SequenceId b = s.kv.fork(a);
  for (const SequenceId id : {a, b}) {
    EXPECT_FALSE(s.kv.on_device(id, 0, {0, 3}));
    EXPECT_TRUE(s.kv.on_device(id, 0, {2, 3}));
    EXPECT_TRUE(s.kv.on_device(id, 1, {0, 3}));
  }
}

TEST(KvStore, SharesPagesFromTheMiddleBehindOthers) {
  Store s;
  const SequenceId a = s.kv.create(), b = s.kv.create();
  s.kv.grow(a, 3 * kPageTokens + 5, s.after);
  s.kv.grow(b, kPageTokens, s.after);
  const std::size_t in_use = s.kv.bytes_in_use(Tier::device);
  s.kv.drop(a, 1, {2, 3}, Tier::device, {});
  s.kv.share(b, a, {kPageTokens, 3 * kPageTokens + 5});
  EXPECT_EQ(s.kv.tokens(b), 3 * kPageTokens + 5);
  EXPECT_EQ(s.kv.bytes(b, Tier::device), 7 * kShape.slot_bytes());
  EXPECT_EQ(s.kv.bytes_in_use(Tier::device), in_use - kShape.slot_bytes()) << "nothing is copied";
  for (std::uint32_t block = 1; block < 4; ++block)
    for (std::uint32_t layer = 0; layer < 2; ++layer)
      EXPECT_EQ(s.kv.slot(b, layer, block, Tier::device), s.kv.slot(a, layer, block, Tier::device));
  EXPECT_FALSE(s.kv.on_device(b, 1, {0, 4}));
  EXPECT_TRUE(s.kv.on_device(b, 0, {0, 4}));
  EXPECT_THROW(s.kv.share(b, a, {0, kPageTokens}), LogicError) << "behind a page that is partly filled";
  s.kv.destroy(a);
  s.kv.destroy(b);
  EXPECT_EQ(s.kv.bytes_in_use(Tier::device), 0u);
}

TEST(KvStore, AsksForSlotsBeforeItIsFull) {
  Store s;
  std::vector<SequenceId> spare(3);
  for (SequenceId& one : spare) {
    one = s.kv.create();
    s.kv.grow(one, 8 * kPageTokens, s.after);  // a quarter of the store
  }
  int asked = 0;
  s.kv.on_full([&] {
    ++asked;
    if (spare.empty()) return false;
    s.kv.destroy(spare.back());
    spare.pop_back();
    return true;
  });
  const SequenceId a = s.kv.create();
  s.kv.grow(a, 8 * kPageTokens, s.after);
  EXPECT_EQ(asked, 0);
  s.kv.grow(a, 9 * kPageTokens, s.after);
  EXPECT_EQ(asked, 2);
  EXPECT_EQ(spare.size(), 1u);
  EXPECT_THROW(s.kv.grow(a, 16 * kPageTokens, s.after), InputError);
  EXPECT_TRUE(spare.empty());
}

TEST(KvStore, APageIsRecycledAfterTheCopyThatReadsIt) {
  Store s;
  const SequenceId a = s.kv.create();
  s.kv.grow(a, 5, s.after);
  const SequenceId b = s.kv.fork(a);
  const std::vector<SlotCopy> copies = s.kv.privatise_tail(b, s.after);
  const Event copy{3, 7};
  s.kv.set_copied(copies, copy);
  s.kv.destroy(a);
  s.kv.grow(b, kPageTokens, s.after);
  EXPECT_EQ(s.after, std::vector<Event>{copy});
}

TEST(KvStore, ARecycledSlotHandsOutTheEventItMustWaitFor) {
  Store s;
  const SequenceId a = s.kv.create();
  s.kv.grow(a, 32, s.after);
  const Event copy{3, 7};
  s.kv.drop(a, 0, {0, 1}, Tier::device, {copy});
  EXPECT_TRUE(s.after.empty());
  s.kv.grow(a, 16, s.after);
  ASSERT_EQ(s.after.size(), 1u);
  EXPECT_EQ(s.after[0], copy);
  s.kv.drop(a, 1, {0, 1}, Tier::device, {copy});
  s.kv.all_done();
  s.after.clear();
  s.kv.grow(a, 16, s.after);
  EXPECT_TRUE(s.after.empty());
}

TEST(KvStore, ASharedSlotIsRecycledAfterTheEventsOfAllThatDroppedIt) {
  Store s;
  const SequenceId a = s.kv.create();
  s.kv.grow(a, kPageTokens, s.after);
  const SequenceId b = s.kv.fork(a);
  const Event first{3, 7}, second{2, 5};
  s.kv.drop(a, 0, {0, 1}, Tier::device, {first});
  s.kv.drop(b, 0, {0, 1}, Tier::device, {second});
  s.kv.grow(a, kPageTokens, s.after);
  EXPECT_EQ(s.after, (std::vector<Event>{first, second}));
}

TEST(KvStore, ListsSlotsOfBlocksThatAreAllThere) {
  Store s;
  const SequenceId a = s.kv.create();
  s.kv.grow(a, 5 * kPageTokens, s.after);
  s.kv.add_host_blocks(a, 1, {1, 3}, s.after);
  s.kv.drop(a, 1, {1, 3}, Tier::device, {});
  const auto listed = [&](std::uint32_t layer, Range blocks, Tier tier) {
    std::vector<std::uint32_t> slots = {77};
    s.kv.append_slots(a, layer, blocks, tier, slots);
    EXPECT_EQ(slots.front(), 77u);
    EXPECT_EQ(slots.size(), 1 + blocks.end - blocks.begin);
    for (std::uint32_t block = blocks.begin; block < blocks.end; ++block)
      EXPECT_EQ(slots[1 + block - blocks.begin], s.kv.slot(a, layer, block, tier));
  };
  listed(0, {0, 5}, Tier::device);
  listed(1, {3, 5}, Tier::device);
  listed(1, {1, 3}, Tier::host);
  listed(0, {9, 9}, Tier::host);
  std::vector<std::uint32_t> slots;
  for (const auto& [layer, blocks, tier] : {std::tuple{1u, Range{0, 2}, Tier::device},
                                            {0u, Range{4, 6}, Tier::device},
                                            {0u, Range{0, 1}, Tier::host},
                                            {1u, Range{2, 4}, Tier::host}}) {
    EXPECT_THROW(s.kv.append_slots(a, layer, blocks, tier, slots), LogicError) << layer << ' ' << blocks.begin;
  }
  EXPECT_TRUE(slots.empty());
}

TEST(KvStore, AFullTierIsASentenceThatNamesTheOption) {
  Store s;
  const SequenceId a = s.kv.create();
  try {
    s.kv.grow(a, 33 * 16, s.after);
    FAIL();
  } catch (const InputError& e) {
    EXPECT_NE(std::string(e.what()).find("--device-kv"), std::string::npos) << e.what();
  }
  s.kv.destroy(a);
  EXPECT_EQ(s.kv.bytes_in_use(Tier::device), 0u);
}

/// Random histories against a plain model: no slot has two owners unless shared, nothing leaks, counts agree.
TEST(KvStore, RandomHistoriesKeepTheBooks) {
  std::mt19937 random(9);
  for (int history = 0; history < 200; ++history) {
    Store s;
    std::vector<SequenceId> live;
    for (int i = 0; i < 60; ++i) {
      const auto pick = live.empty() ? 0 : live[random() % live.size()];
      try {
        switch (random() % 6) {
          case 0:
            live.push_back(s.kv.create());
            break;
          case 1:
            if (pick != 0) live.push_back(s.kv.fork(pick));
            break;
          case 2:
            if (pick != 0) {
              s.kv.privatise_tail(pick, s.after);
              s.kv.grow(pick, static_cast<std::uint32_t>(1 + random() % 40), s.after);
            }
            break;
          case 3:
            if (pick != 0 && s.kv.tokens(pick) >= 32) {
              const Range blocks{0, s.kv.tokens(pick) / 32};
              for (std::uint32_t layer = 0; layer < 2; ++layer) {
                if (s.kv.slot(pick, layer, 0, Tier::device) == KvStore::kNoSlot) break;
                s.kv.add_host_blocks(pick, layer, blocks, s.after);
                s.kv.drop(pick, layer, blocks, Tier::device, {Event{1, 1}});
              }
            }
            break;
          case 4:
            if (pick != 0) {
              std::erase(live, pick);
              s.kv.destroy(pick);
            }
            break;
          default:
            s.kv.all_done();
        }
      } catch (const InputError&) {  // full
        std::erase(live, pick);
        s.kv.destroy(pick);
      } catch (const LogicError&) {  // add_host_blocks of a block an earlier move has taken: allowed to refuse
        std::erase(live, pick);
        s.kv.destroy(pick);
      }
      for (const Tier tier : {Tier::device, Tier::host}) {
        std::map<std::uint32_t, std::set<std::pair<std::uint32_t, std::uint32_t>>> owners;  // slot -> (layer, block)
        for (const SequenceId id : live) {
          for (std::uint32_t layer = 0; layer < 2; ++layer) {
            for (std::uint32_t block = 0; block < blocks_for(s.kv.tokens(id)); ++block) {
              const std::uint32_t slot = s.kv.slot(id, layer, block, tier);
              if (slot != KvStore::kNoSlot) owners[slot].insert({layer, block});
            }
          }
        }
        for (const auto& [slot, where] : owners) ASSERT_EQ(where.size(), 1u) << "slot " << slot << " has two meanings";
        ASSERT_EQ(owners.size() * kShape.slot_bytes(), s.kv.bytes_in_use(tier));
      }
    }
  }
}

}  // namespace
}  // namespace tandem::testing
