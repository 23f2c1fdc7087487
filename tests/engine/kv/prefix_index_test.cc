// The index of the prefix cache beside a dictionary of whole chains, also where most blocks have the same hash.
#include "engine/kv/prefix_index.h"

#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <random>

#include "engine/common/error.h"

namespace tandem {
namespace {

using Block = PrefixIndex::Block;
using Tokens = std::vector<std::int32_t>;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::uint64_t four_bits(std::uint64_t before, std::span<const std::int32_t> tokens) {
  return chain_hash(before, tokens) & 15;
}
std::uint64_t always_the_same(std::uint64_t, std::span<const std::int32_t>) {
  return 7;
}

Block add(PrefixIndex& index, Block parent, const Tokens& tokens, std::size_t bytes) {
  const Block block = index.insert(parent, tokens, bytes).value_or(PrefixIndex::kRoot);
  EXPECT_NE(block, PrefixIndex::kRoot);
  return block;
}

TEST(PrefixIndex, FindsTheLongestChain) {
  PrefixIndex index(100, [](Block) {});
  const Block a = add(index, PrefixIndex::kRoot, {1, 2}, 10);
  const Block b = add(index, a, {3, 4}, 10);
  const Block rest = add(index, b, {}, 10);
  EXPECT_THAT(index.longest(Tokens{1, 2, 3, 4, 5}, 2), ElementsAre(a, b));
  EXPECT_THAT(index.longest(Tokens{1, 2, 3, 5}, 2), ElementsAre(a));
  EXPECT_THAT(index.longest(Tokens{3, 4, 1, 2}, 2), IsEmpty()) << "the same blocks behind others";
  EXPECT_EQ(index.find(b, Tokens{}), rest);
  EXPECT_EQ(index.find(a, Tokens{}), std::nullopt);
  EXPECT_EQ(index.bytes(), 30u);
}

TEST(PrefixIndex, EvictsLeavesThatWereNotUsedForLongestAndNothingThatIsPinned) {
  std::vector<Block> evicted;
  PrefixIndex index(30, [&](Block block) { evicted.push_back(block); });
  const Block a = add(index, PrefixIndex::kRoot, {1}, 10), b = add(index, a, {2}, 10), c = add(index, a, {3}, 10);
  index.longest(Tokens{1, 2}, 1);
  const Block d = add(index, b, {4}, 10);
  EXPECT_THAT(evicted, ElementsAre(c));
  EXPECT_EQ(index.insert(d, Tokens{5}, 10), std::nullopt) << "the chain fills the budget";
  index.pin(d);
  EXPECT_EQ(index.insert(PrefixIndex::kRoot, Tokens{9}, 10), std::nullopt);
  EXPECT_FALSE(index.evict_one());
  index.unpin(d);
  EXPECT_THROW(index.unpin(d), LogicError);
  EXPECT_EQ(index.insert(PrefixIndex::kRoot, Tokens{9}, 31), std::nullopt) << "more than the budget evicts nothing";
  EXPECT_EQ(index.blocks(), 3u);
  EXPECT_TRUE(index.insert(PrefixIndex::kRoot, Tokens{9}, 20));
  EXPECT_THAT(evicted, ElementsAre(c, d, b));
}

TEST(PrefixIndex, ACollisionNeverGivesAnotherBlock) {
  PrefixIndex index(
      1 << 20, [](Block) {}, always_the_same);
  const Block a = add(index, PrefixIndex::kRoot, {1}, 1), b = add(index, PrefixIndex::kRoot, {2}, 1);
  EXPECT_EQ(index.find(PrefixIndex::kRoot, Tokens{3}), std::nullopt);
  const Block of_a = add(index, a, {5}, 1);
  EXPECT_EQ(index.find(b, Tokens{5}), std::nullopt) << "the same tokens behind another block";
  const Block of_b = add(index, b, {5}, 1);
  EXPECT_THAT(index.longest(Tokens{1, 5}, 1), ElementsAre(a, of_a));
  EXPECT_THAT(index.longest(Tokens{2, 5}, 1), ElementsAre(b, of_b));
}

TEST(PrefixIndex, HashesDependOnAllTokensBefore) {
  EXPECT_NE(chain_hash(1, Tokens{}), 1u);
  EXPECT_NE(chain_hash(1, Tokens{2}), chain_hash(2, Tokens{2}));
  EXPECT_NE(chain_hash(1, Tokens{0, 0}), chain_hash(1, Tokens{0}));
  EXPECT_NE(chain_hash(1, Tokens{1, 2}), chain_hash(1, Tokens{2, 1}));
}

/// Chains of blocks as a dictionary: a key is all blocks from the root to one.
class Dictionary {
 public:
  using Chain = std::vector<Tokens>;
  struct Entry {
    Block block = PrefixIndex::kRoot;
    std::size_t bytes = 0;
    int pins = 0;
    std::uint64_t used = 0;
  };

  explicit Dictionary(std::size_t budget) : budget_(budget) {}

  std::map<Chain, Entry> entries;
  std::size_t bytes = 0;
  std::vector<Block> evicted;

  void use(const Chain& chain) { entries.at(chain).used = ++clock_; }
  bool evict_one(const Chain& except = {}) {
    auto oldest = entries.end();
    for (auto entry = entries.begin(); entry != entries.end(); ++entry) {
      const auto next = std::next(entry);  // its children follow it in the order of keys
      const bool has_children = next != entries.end() && next->first.size() > entry->first.size() &&
                                std::equal(entry->first.begin(), entry->first.end(), next->first.begin());
      if (has_children || entry->second.pins > 0 || entry->first == except) continue;
      if (oldest == entries.end() || entry->second.used < oldest->second.used) oldest = entry;
    }
    if (oldest == entries.end()) return false;
    evicted.push_back(oldest->second.block);
    bytes -= oldest->second.bytes;
    entries.erase(oldest);
    return true;
  }
  bool insert(const Chain& parent, const Tokens& tokens, std::size_t size) {
    if (size > budget_) return false;
    while (bytes + size > budget_)
      if (!evict_one(parent)) return false;
    Chain chain = parent;
    chain.push_back(tokens);
    entries[chain] = {PrefixIndex::kRoot, size, 0, ++clock_};
    bytes += size;
    return true;
  }

 private:
  std::size_t budget_;
  std::uint64_t clock_ = 0;
};

void compare_with_dictionary(PrefixIndex::Hash hash, int operations) {
  constexpr std::size_t kBudget = 100;
  Dictionary expected(kBudget);
  std::vector<Block> evicted;
  PrefixIndex index(
      kBudget, [&](Block block) { evicted.push_back(block); }, hash);
  std::mt19937 random(5);
  const auto below = [&](std::size_t n) { return static_cast<std::uint32_t>(random() % n); };
  const auto some_tokens = [&](std::uint32_t n) {
    Tokens tokens(n);
    for (std::int32_t& token : tokens) token = static_cast<std::int32_t>(below(2));
    return tokens;
  };
  const auto any = [&] { return std::next(expected.entries.begin(), below(expected.entries.size())); };
  int inserted = 0, found = 0, longest = 0;
  std::map<Dictionary::Chain, int> pins;
  for (int i = 0; i < operations; ++i) {
    switch (const std::uint32_t what = below(10); what) {
      case 0:
      case 1:
      case 2:
      case 3: {
        Dictionary::Chain parent;
        Block block = PrefixIndex::kRoot;
        if (!expected.entries.empty() && below(4) > 0) {
          parent = any()->first;
          block = expected.entries.at(parent).block;
        }
        const Tokens tokens = some_tokens(below(3));
        Dictionary::Chain chain = parent;
        chain.push_back(tokens);
        const auto there = expected.entries.find(chain);
        const std::optional<Block> hit = index.find(block, tokens);
        ASSERT_EQ(hit.has_value(), there != expected.entries.end());
        if (hit) {
          ++found;
          ASSERT_EQ(*hit, there->second.block);
          expected.use(chain);
          break;
        }
        const std::size_t bytes = 1 + below(12);
        const std::optional<Block> added = index.insert(block, tokens, bytes);
        ASSERT_EQ(added.has_value(), expected.insert(parent, tokens, bytes));
        if (added) {
          expected.entries.at(chain).block = *added;
          ++inserted;
        }
        break;
      }
      case 4:
      case 5:
      case 6: {
        const Tokens tokens = some_tokens(below(9));
        const std::vector<Block> chain = index.longest(tokens, 2);
        Dictionary::Chain so_far;
        std::vector<Block> blocks;
        for (std::size_t at = 0; at + 2 <= tokens.size(); at += 2) {
          so_far.push_back({tokens[at], tokens[at + 1]});
          const auto there = expected.entries.find(so_far);
          if (there == expected.entries.end()) break;
          blocks.push_back(there->second.block);
          expected.use(so_far);
        }
        ASSERT_EQ(chain, blocks);
        longest = std::max(longest, static_cast<int>(chain.size()));
        break;
      }
      case 7:
      case 8: {
        if (expected.entries.empty()) break;
        const auto entry = any();
        if (what == 7 && pins.size() < 3) {
          index.pin(entry->second.block);
          ++entry->second.pins;
          ++pins[entry->first];
        } else if (!pins.empty()) {
          const auto pinned = std::next(pins.begin(), below(pins.size()));
          Dictionary::Entry& one = expected.entries.at(pinned->first);
          index.unpin(one.block);
          --one.pins;
          if (--pinned->second == 0) pins.erase(pinned);
        }
        break;
      }
      default:
        ASSERT_EQ(index.evict_one(), expected.evict_one());
    }
    ASSERT_EQ(evicted, expected.evicted);
    evicted.clear();
    expected.evicted.clear();
    ASSERT_EQ(index.bytes(), expected.bytes);
    ASSERT_LE(index.bytes(), kBudget);
    ASSERT_EQ(index.blocks(), expected.entries.size());
  }
  EXPECT_GT(inserted, operations / 20);
  EXPECT_GT(found, operations / 20);
  EXPECT_GE(longest, 3);
}

TEST(PrefixIndex, IsADictionaryOfChainsWhereHashesCollide) {
  compare_with_dictionary(four_bits, 100'000);
}

TEST(PrefixIndex, IsADictionaryOfChainsWithItsOwnHashAndWithOneForAll) {
  compare_with_dictionary(chain_hash, 20'000);
  compare_with_dictionary(always_the_same, 5'000);
}

}  // namespace
}  // namespace tandem
