// Page lists that the GPU or its emulation makes of its own selections, and attention over them.
#include <algorithm>
#include <tuple>

#include "engine/common/error.h"
#include "engine/kernels/digest.h"
#include "engine/kernels/paged_attention.h"
#include "engine/kernels/topk.h"
#include "engine/mechanisms/residency/kernels/residency.h"
#include "tests/engine/kernels/paged_batch.h"

namespace tandem {
namespace {

class PageSelectionTest : public CudaTest {};
class AttendedSelectionTest : public CudaTypeTest {};
TANDEM_EACH_TYPE(AttendedSelectionTest);

TEST_F(PageSelectionTest, ListsTheUnionInOrder) {
  Random random(11);
  const std::uint32_t heads = 2, group = 3;
  const struct {
    std::uint32_t together;
    bool own_only;
    std::vector<std::uint32_t> blocks;
  } cases[] = {{1, true, {1, 40, 4096, 5000}},
               {1, false, {1, 40, 4096, 5000}},
               {group, true, {1, 40, 4100}},
               {heads * group, true, {40, 1}}};
  for (const auto& [together, own_only, sizes] : cases) {
    struct Row {
      std::uint32_t blocks, pages_per_block, tokens;
      std::vector<std::vector<std::uint32_t>> masks;  // [head][block]
      OnDevice<std::uint32_t> chosen, slots;
      std::vector<std::uint32_t> host_slots;
    };
    std::vector<Row> rows;
    std::vector<BlockSelection> list;
    std::uint32_t capacity = 0;
    for (const std::uint32_t blocks : sizes) {
      const std::uint32_t pages_per_block = 1 + random.below(3);
      Row row{blocks, pages_per_block, blocks * pages_per_block * 16 - random.below(pages_per_block * 16), {}, {}, {},
              {}};
      const std::uint32_t room = blocks + 3;
      std::vector<std::uint32_t> chosen(heads * group / together * (1 + room));
      for (std::uint32_t p = 0; p < (row.tokens + 15) / 16; ++p) row.host_slots.push_back(random.below(1000));
      row.masks.assign(heads, std::vector<std::uint32_t>(blocks));
      for (std::uint32_t h = 0; h < heads * group; h += together) {
        std::uint32_t* const head = &chosen[std::size_t{h / together} * (1 + room)];
        for (std::uint32_t b = 0; b < blocks; ++b) {
          if (b + 1 != blocks && random.below(h + 2) != 0) continue;
          head[++head[0]] = b;
          for (std::uint32_t k = h / group; k <= (h + together - 1) / group; ++k)
            row.masks[k][b] |= together == 1 ? 1u << h % group : ~0u;
        }
      }
      row.chosen = OnDevice<std::uint32_t>(chosen);
      row.slots = OnDevice<std::uint32_t>(row.host_slots);
      list.push_back({row.chosen.data(), row.slots.data(), blocks, pages_per_block, row.tokens, room});
      capacity = std::max(capacity, blocks * pages_per_block);
      rows.push_back(std::move(row));
    }
    const OnDevice<BlockSelection> selection(list);
    // Initialised, since what lies beyond the counts is copied back too.
    const OnDevice<PageEntry> entries(std::vector<PageEntry>(list.size() * heads * capacity));
    const OnDevice<std::uint32_t> counts(list.size() * heads);
    pages_of_selection_cuda(selection.data(), static_cast<std::uint32_t>(list.size()), heads, group, together, own_only,
                            capacity, entries.data(), counts.data(), {});
    const auto all = entries.values();
    if (together <= group) {  // the first KV head alone, with how many tokens that are
      const std::vector<std::uint64_t> before(list.size(), std::uint64_t{1} << 33);
      const OnDevice<std::uint64_t> totals(before), own(std::vector<std::uint64_t>(list.size(), 7));
      const OnDevice<PageEntry> alone(std::vector<PageEntry>(list.size() * capacity));
      const OnDevice<std::uint32_t> pages(list.size());
      pages_of_selection_cuda(selection.data(), static_cast<std::uint32_t>(list.size()), 1, group, together, own_only,
                              capacity, alone.data(), pages.data(), {}, {totals.data(), own.data()});
      for (std::size_t r = 0; r < rows.size(); ++r) {
        const std::uint32_t count = counts.values()[r * heads];
        std::uint64_t expected = 0;
        for (std::uint32_t i = 0; i < count; ++i) expected += all[r * heads * capacity + i].tokens;
        EXPECT_EQ(pages.values()[r], count);
        EXPECT_EQ(own.values()[r], expected);
        EXPECT_EQ(totals.values()[r], before[r] + expected);
      }
    }
    for (std::size_t r = 0; r < rows.size(); ++r) {
      for (std::uint32_t h = 0; h < heads; ++h) {
        const PageEntry* at = &all[(r * heads + h) * capacity];
        const PageEntry* const first = at;
        for (std::uint32_t b = 0; b < rows[r].blocks; ++b) {
          const std::uint32_t mask = rows[r].masks[h][b];
          for (std::uint32_t p = 0; mask != 0 && p < rows[r].pages_per_block; ++p, ++at) {
            const std::uint32_t page = b * rows[r].pages_per_block + p;
            const std::uint32_t left = rows[r].tokens > page * 16 ? std::min(16u, rows[r].tokens - page * 16) : 0;
            ASSERT_EQ(at->tokens, left);
            ASSERT_EQ(at->head_mask, left == 0 ? 0 : own_only ? mask : ~0u);
            ASSERT_EQ(at->slot, left > 0 ? rows[r].host_slots[page] : 0);
          }
        }
        EXPECT_EQ(counts.values()[r * heads + h], at - first);
      }
    }
  }
}

TEST_F(PageSelectionTest, TokensOfListsAreAddedToTheirRows) {
  Random random(12);
  const std::uint32_t rows = 3, heads = 2, capacity = 700;
  std::vector<PageEntry> entries(std::size_t{rows} * heads * capacity, PageEntry{0, 0, 16, ~0u});  // beyond the counts
  const std::vector<std::uint32_t> counts = {0, 1, 700, 257, 0, 0};
  const std::vector<std::uint64_t> before = {1000, 2000, std::uint64_t{1} << 40};
  std::vector<std::uint64_t> expected = before;
  for (std::uint32_t list = 0; list < rows * heads; ++list) {
    for (std::uint32_t i = 0; i < counts[list]; ++i) {
      PageEntry& entry = entries[std::size_t{list} * capacity + i];
      entry.tokens = static_cast<std::uint16_t>(random.below(17));
      entry.head_mask = random.below(2) ? ~0u : 0u;
      expected[list / heads] += entry.tokens;
    }
  }
  const OnDevice<PageEntry> on_device(entries);
  const OnDevice<std::uint32_t> device_counts(counts);
  const PageLists lists{on_device.data(), device_counts.data(), capacity, true};
  const OnDevice<std::uint64_t> totals(before);
  count_tokens_cuda(lists, rows, heads, totals.data(), {});
  EXPECT_EQ(totals.values(), expected);
  EXPECT_THROW(count_tokens_cuda({}, 1, 1, nullptr, {}), LogicError);
}

TEST_F(PageSelectionTest, WholePagesFillTheirListsPagesAndTheLastOnePartly) {
  std::vector<std::uint32_t> slots(301);
  for (std::uint32_t page = 0; page < slots.size(); ++page) slots[page] = 7 * page + 2;
  const OnDevice<std::uint32_t> three(std::vector<std::uint32_t>{3}), counts(6), places(slots);
  const OnDevice<WholePages> lists(std::vector<WholePages>{
      {0}, {16}, {16 * 300 + 5, nullptr, places.data()}, {15, three.data()}, {0, three.data()}, {16 * 400}});
  const std::vector<std::uint32_t> tokens = {0, 16, 16 * 300 + 5, 45, 0, 16 * 301}, pages = {0, 1, 301, 3, 0, 301};
  constexpr std::uint32_t kCapacity = 301;  // the last list has more
  const OnDevice<PageEntry> entries(std::vector<PageEntry>(std::size_t{6} * kCapacity));
  whole_pages_cuda(lists.data(), 6, kCapacity, entries.data(), counts.data(), {});
  EXPECT_EQ(counts.values(), pages);
  const auto found = entries.values();
  for (std::uint32_t list = 0; list < 6; ++list) {
    for (std::uint32_t page = 0; page < pages[list]; ++page) {
      const PageEntry& entry = found[std::size_t{list} * kCapacity + page];
      ASSERT_EQ(entry.slot, list == 2 ? slots[page] : page);
      ASSERT_EQ(entry.first, 0);
      ASSERT_EQ(entry.tokens, std::min(16u, tokens[list] - 16 * page));
      ASSERT_EQ(entry.head_mask, ~0u);
    }
  }
}

TEST_F(PageSelectionTest, RangesOfTokensAreListedPageByPage) {
  std::vector<std::uint32_t> slots(700);
  for (std::uint32_t page = 0; page < slots.size(); ++page) slots[page] = 3 * page + 1;
  const OnDevice<std::uint32_t> places(slots);
  // Two ranges may share a page, and one may lie within a page or be empty.
  const std::vector<TokenRange> ranges = {{5, 39}, {40, 41}, {41, 48}, {7, 7}, {16, 16 * 700}, {3, 4}};
  const std::vector<PageRanges> lists = {{places.data(), 0, 3}, {places.data(), 3, 1}, {places.data(), 4, 2}, {}};
  constexpr std::uint32_t kCapacity = 699;  // the third list has one more
  std::vector<std::vector<PageEntry>> expected(lists.size());
  for (std::size_t list = 0; list < lists.size(); ++list) {
    for (std::uint32_t r = lists[list].first; r < lists[list].first + lists[list].count; ++r) {
      std::uint32_t before = ~0u;
      for (std::uint32_t token = ranges[r].begin; token < ranges[r].end; ++token) {
        if (token / 16 != before)
          expected[list].push_back({slots[token / 16], static_cast<std::uint16_t>(token % 16), 0, ~0u});
        before = token / 16;
        ++expected[list].back().tokens;
      }
    }
    expected[list].resize(std::min<std::size_t>(expected[list].size(), kCapacity));
  }
  ASSERT_EQ(expected[2].size(), kCapacity);
  const OnDevice<PageRanges> far_lists(lists);
  const OnDevice<TokenRange> far_ranges(ranges);
  const struct {
    LaunchArray<PageRanges> lists;
    LaunchArray<TokenRange> ranges;
  } ways[] = {{far_lists.data(), far_ranges.data()},
              {LaunchArray<PageRanges>(std::span(lists)), LaunchArray<TokenRange>(std::span(ranges))}};
  for (const auto& way : ways) {
    const OnDevice<PageEntry> entries(std::vector<PageEntry>(lists.size() * kCapacity));
    const OnDevice<std::uint32_t> counts(4);
    pages_of_ranges_cuda(way.lists, way.ranges, 4, false, kCapacity, entries.data(), counts.data(), {});
    const auto found = entries.values();
    for (std::size_t list = 0; list < lists.size(); ++list) {
      ASSERT_EQ(counts.values()[list], expected[list].size());
      for (std::size_t i = 0; i < expected[list].size(); ++i) {
        const PageEntry &a = found[list * kCapacity + i], &b = expected[list][i];
        ASSERT_EQ(std::tie(a.slot, a.first, a.tokens, a.head_mask), std::tie(b.slot, b.first, b.tokens, b.head_mask))
            << "list " << list << ", entry " << i;
      }
    }
  }
}

TEST_F(PageSelectionTest, RangesComeBehindWhatIsListed) {
  std::vector<std::uint32_t> slots(600);
  for (std::uint32_t page = 0; page < slots.size(); ++page) slots[page] = 1000 + page;
  const OnDevice<std::uint32_t> places(slots);
  constexpr std::uint32_t kCapacity = 302;
  // In lists with two entries, none, all but one and all that there is room for; nothing comes to a fifth.
  const std::vector<std::uint32_t> held = {2, 0, kCapacity - 1, kCapacity, 7};
  const std::vector<TokenRange> ranges = {{16 * 300 + 5, 16 * 600}, {3, 40}};
  const std::vector<PageRanges> lists = {
      {places.data(), 0, 1}, {places.data(), 1, 1}, {places.data(), 1, 1}, {places.data(), 1, 1}, {}};
  std::vector<PageEntry> before(lists.size() * kCapacity);
  for (std::uint32_t i = 0; i < before.size(); ++i) before[i] = {i, 1, 2, 3};
  const OnDevice<PageEntry> entries(before);
  const OnDevice<std::uint32_t> counts(held);
  pages_of_ranges_cuda(LaunchArray<PageRanges>(std::span(lists)), LaunchArray<TokenRange>(std::span(ranges)), 5, true,
                       kCapacity, entries.data(), counts.data(), {});
  EXPECT_EQ(counts.values(), (std::vector<std::uint32_t>{kCapacity, 3, kCapacity, kCapacity, 7}));
  const auto found = entries.values();
  for (std::size_t list = 0; list < lists.size(); ++list) {
    for (std::uint32_t i = 0; i < counts.values()[list]; ++i) {
      const PageEntry& entry = found[list * kCapacity + i];
      if (i < held[list]) {
        ASSERT_EQ(entry.slot, list * kCapacity + i);
        continue;
      }
      const std::uint32_t page = i - held[list] + (list == 0 ? 300 : 0);
      ASSERT_EQ(entry.slot, 1000 + page);
      ASSERT_EQ(entry.first, i > held[list] ? 0 : list == 0 ? 5 : 3);
      ASSERT_EQ(entry.tokens, list == 0 ? 16 - entry.first : page == 2 ? 8 : 16 - entry.first);
      ASSERT_EQ(entry.head_mask, ~0u);
    }
  }
}

TEST_F(PageSelectionTest, ListsWithoutRoomAreEmpty) {
  const OnDevice<std::uint32_t> places(std::vector<std::uint32_t>{5}), counts(std::vector<std::uint32_t>{9, 9});
  const std::vector<PageRanges> lists = {{places.data(), 0, 1}, {}};
  const std::vector<TokenRange> ranges = {{0, 16}};
  pages_of_ranges_cuda(LaunchArray<PageRanges>(std::span(lists)), LaunchArray<TokenRange>(std::span(ranges)), 2, false,
                       0, nullptr, counts.data(), {});
  EXPECT_EQ(counts.values(), (std::vector<std::uint32_t>{0, 0}));
}

TEST_F(PageSelectionTest, SlotsArePlacedInEveryLayersTable) {
  constexpr std::uint32_t kLayers = 3, kCapacity = 400;
  std::vector<std::uint32_t> expected(std::size_t{kLayers} * kCapacity, 7);
  const OnDevice<std::uint32_t> table(expected);
  for (const auto& [first, count] : {std::pair{0u, 300u}, {300u, 5u}, {305u, 0u}}) {  // more than go along, and few
    std::vector<std::uint32_t> slots;
    for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
      for (std::uint32_t i = 0; i < count; ++i) {
        slots.push_back(1000 * layer + first + i);
        expected[layer * kCapacity + first + i] = slots.back();
      }
    }
    const OnDevice<std::uint32_t> far_slots(slots);
    const bool goes_along = slots.size() <= LaunchArray<std::uint32_t>::kHere;
    place_slots_cuda(goes_along ? LaunchArray<std::uint32_t>(std::span<const std::uint32_t>(slots)) : far_slots.data(),
                     kLayers, first, count, kCapacity, table.data(), {});
  }
  EXPECT_EQ(table.values(), expected);
  EXPECT_THROW(place_slots_cuda({}, kLayers, kCapacity, 1, kCapacity, nullptr, {}), LogicError);
  EXPECT_THROW(LaunchArray<std::uint32_t>(std::span<const std::uint32_t>(expected)), LogicError);
}

TEST_F(PageSelectionTest, SingleTokensAreListedInTheirPages) {
  Random random(15);
  std::vector<std::uint32_t> slots(40), chosen = {0};
  for (std::uint32_t& slot : slots) slot = random.below(1000);
  for (std::uint32_t token = 0; token < 16 * 40; token += 1 + random.below(3)) {
    chosen.push_back(token);
    ++chosen[0];
  }
  const std::uint32_t count = chosen[0], capacity = count - 2;  // what is more is dropped
  const OnDevice<std::uint32_t> device_slots(slots), device_chosen(chosen), none(std::vector<std::uint32_t>{0});
  const OnDevice<SingleTokens> lists(
      {{nullptr, nullptr}, {device_chosen.data(), device_slots.data()}, {none.data(), device_slots.data()}});
  const OnDevice<PageEntry> entries(std::vector<PageEntry>(std::size_t{3} * capacity));
  const OnDevice<std::uint32_t> counts(3);
  pages_of_tokens_cuda(lists.data(), 3, capacity, entries.data(), counts.data(), {});
  EXPECT_EQ(counts.values(), (std::vector<std::uint32_t>{0, capacity, 0}));
  const auto found = entries.values();
  for (std::uint32_t i = 0; i < capacity; ++i) {
    const PageEntry& entry = found[capacity + i];
    ASSERT_EQ(entry.slot, slots[chosen[1 + i] / 16]);
    ASSERT_EQ(entry.first, chosen[1 + i] % 16);
    ASSERT_EQ(entry.tokens, 1);
    ASSERT_EQ(entry.head_mask, ~0u);
  }
}

TEST_F(PageSelectionTest, ResidentsAreListedSlotBySlot) {
  Random random(14);
  for (const std::uint32_t residents : {0u, 1u, 255u, 256u, 300u}) {
    const std::uint32_t per_block = 3, capacity = residents * per_block + 2;
    std::vector<std::uint32_t> table(residents), chosen = {0};
    for (std::uint32_t slot = 0; slot < residents; ++slot) table[slot] = residents * 2 - 2 * slot;  // falling, even
    for (std::uint32_t block = 0; block < 2 * residents + 3; ++block) {
      if (random.below(3) != 0) continue;
      chosen.push_back(block);
      ++chosen[0];
    }
    const OnDevice<std::uint32_t> device_table(table), device_chosen(chosen), counts(2);
    const OnDevice<ResidentPages> lists(
        {{device_table.data(), device_chosen.data(), residents, per_block}, {nullptr, nullptr, residents, per_block}});
    const OnDevice<PageEntry> entries(std::vector<PageEntry>(std::size_t{2} * capacity));
    pages_of_residents_cuda(lists.data(), 2, capacity, entries.data(), counts.data(), {});
    const auto found = entries.values();
    for (const bool all : {false, true}) {
      const PageEntry* at = found.data() + (all ? capacity : 0);
      std::uint32_t count = 0;
      for (std::uint32_t slot = 0; slot < residents; ++slot) {
        if (!all && std::find(chosen.begin() + 1, chosen.end(), table[slot]) == chosen.end()) continue;
        for (std::uint32_t page = 0; page < per_block; ++page, ++count, ++at) {
          ASSERT_EQ(at->slot, slot * per_block + page);
          ASSERT_EQ(at->first, 0);
          ASSERT_EQ(at->tokens, 16);
          ASSERT_EQ(at->head_mask, ~0u);
        }
      }
      EXPECT_EQ(counts.values()[all ? 1 : 0], count);
    }
  }
}

TEST_P(AttendedSelectionTest, WhatTheDeviceSelectedIsAttendedThere) {
  Random random(13);
  const std::uint32_t heads = 2, group = 4, dim = 64, tokens = 310, blocks = 20, keep = 5;
  PagedBatch batch(random, type(), heads, group, dim, blocks, 2);
  batch.lists.push_back(batch.tokens(random, tokens));
  const auto q = queries(random, batch);
  std::vector<std::uint32_t> slots;
  for (const PageEntry& entry : batch.lists[0]) slots.push_back(entry.slot);
  const DeviceBatch device(batch);
  const OnDevice<float> query(q), scores(std::size_t{heads} * group * blocks);
  const OnDevice<std::uint32_t> device_slots(slots);
  const OnDevice<char> digests(std::size_t{heads} * 2 * blocks * dim * size_of(type()));
  const OnDevice<DigestRun> run({{device_slots.data(), digests.data(), tokens, blocks}});
  build_digests_cuda(device.kv, run.data(), 1, tokens, 1, {});
  const OnDevice<BlockScores> request({{query.data(), digests.data(), blocks, scores.data()}});
  score_blocks_cuda(request.data(), 1, blocks, heads, {group, dim, type()}, {});
  const OnDevice<std::uint32_t> chosen(std::size_t{heads} * group * (1 + blocks));
  std::vector<TopKRow> best;
  for (std::uint32_t h = 0; h < heads * group; ++h)
    best.push_back({scores.data() + h * blocks, blocks, keep, chosen.data() + h * (1 + blocks)});
  const OnDevice<TopKRow> best_rows(best);
  top_k_cuda(best_rows.data(), heads * group, 1, {});
  const OnDevice<BlockSelection> selection({{chosen.data(), device_slots.data(), blocks, 1, tokens, blocks}});
  const std::uint32_t capacity = std::min(blocks, group * keep);
  const OnDevice<PageEntry> entries(std::size_t{heads} * capacity);
  const OnDevice<std::uint32_t> counts(heads);
  pages_of_selection_cuda(selection.data(), 1, heads, group, 1, true, capacity, entries.data(), counts.data(), {});

  const AttentionPlan plan = plan_paged_attention(std::vector<std::uint32_t>(heads, capacity), 1, heads, true);
  const Attended result = attend(plan, 1, group, query, device.kv, {entries.data(), counts.data(), capacity, true});
  // The oracle attends the blocks that are best by the CPU's scores.
  PagedBatch wanted = batch;
  wanted.per_kv_head = true;
  wanted.lists.assign(heads, batch.lists[0]);
  for (std::uint32_t h = 0; h < heads; ++h) {
    for (PageEntry& entry : wanted.lists[h]) entry.head_mask = 0;
    for (std::uint32_t g = 0; g < group; ++g) {
      std::vector<float> block_scores(blocks);
      for (std::uint32_t b = 0; b < blocks; ++b) {
        std::vector<char> low(dim * size_of(type())), high(low.size());
        const PageEntry& entry = batch.lists[0][b];
        build_digest(batch.vector(entry.slot, h, false, 0), type(), entry.tokens, dim, low.data(), high.data());
        score_blocks(&q[(std::size_t{h} * group + g) * dim], low.data(), high.data(), 1, {1, dim, type()},
                     &block_scores[b]);
      }
      std::uint32_t top[keep];
      top_k(block_scores.data(), blocks, keep, top);
      for (const std::uint32_t b : top) wanted.lists[h][b].head_mask |= 1u << g;
    }
  }
  expect_agrees(result, expected(wanted, q), kTolerance);
}

}  // namespace
}  // namespace tandem
