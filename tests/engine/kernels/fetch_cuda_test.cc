// What is chosen on the GPU or its emulation and fetched from pinned memory without the host having seen the choice;
// and a task of Fluxion's queue as the device does it, from digests and pages that stay in pinned memory.
#include <algorithm>
#include <numeric>

#include "engine/kernels/digest.h"
#include "engine/kernels/fetch_list.h"
#include "engine/kernels/gather.h"
#include "engine/kernels/topk.h"
#include "engine/mechanisms/partial_key_index/kernels/skewed.h"
#include "tests/engine/kernels/paged_batch.h"
#include "tests/engine/kernels/uneven_lists.h"

namespace tandem {
namespace {

using Words = std::vector<std::uint32_t>;

/// Bytes that the device reaches on the host.
PinnedMemory pinned(const void* from, std::size_t bytes) {
  PinnedMemory memory(bytes);
  std::memcpy(memory.as<>(), from, bytes);
  return memory;
}

class FetchCudaTest : public CudaTest {};

TEST_F(FetchCudaTest, UnitsCrossTheLinkAsTheDeviceListsThem) {
  Random random(1);
  const std::uint32_t heads = 2, group = 2, dim = 8, pages = 12, most = 3, n = pages * 16;
  const std::vector<float> pool = random.normals(std::size_t{pages} * heads * 32 * dim);
  const PinnedMemory host = pinned(pool.data(), pool.size() * sizeof(float));
  Words slots(pages);
  std::iota(slots.begin(), slots.end(), 0u);
  std::reverse(slots.begin(), slots.end());
  const PinnedMemory host_slots = pinned(slots.data(), pages * sizeof(std::uint32_t));
  const auto scores = random.normals(std::size_t{heads} * group * n, 2);
  const OnDevice<float> device_scores(scores);
  for (const std::uint32_t unit : {1u, 32u}) {
    const std::uint32_t piece = std::min(unit, 16u), room = 2 * heads * most * (unit / piece);
    const OnDevice<std::uint32_t> chosen(heads * (1 + most)), near(heads * group), from(room), to(room), count(1);
    const OnDevice<SkewedChoice> choice(
        std::vector<SkewedChoice>{{device_scores.data(), n, unit, most, 3, chosen.data(), most, near.data(), nullptr}});
    choose_skewed_cuda(choice.data(), 1, n / unit, heads, group, Scope::kv_head, {});
    const OnDevice<UnitFetch> fetch(std::vector<UnitFetch>{{chosen.data(), most, host_slots.as<std::uint32_t>(), 0}});
    list_units_cuda(fetch.data(), 1, heads, unit, pages, {from.data(), to.data(), count.data(), room}, {});
    const std::size_t row = std::size_t{piece} * dim;
    const std::vector<float> nothing(room * row, -7.0f);
    const OnDevice<float> staged(nothing), by_dma(nothing);
    Pieces move;
    move.from = host.as<>();
    move.to = staged.data();
    move.from_stride = move.to_stride = move.bytes = row * sizeof(float);
    move.from_slots = from.data();
    move.to_slots = to.data();
    move.count = room;
    move.slots_on_host = false;
    move.device_count = count.data();
    gather_cuda(move, GatherWay::zero_copy, {});

    std::vector<float> expected = nothing;
    Words list(1 + most);
    const std::uint32_t tokens = tokens_near_the_best(scores.data(), heads * group, n, 3);
    for (std::uint32_t head = 0; head < heads; ++head) {
      best_units(scores.data() + std::size_t{head} * group * n, group, n, unit,
                 std::min(most, (tokens + unit - 1) / unit), list.data());
      for (std::uint32_t i = 0; i < list[0] * unit; ++i) {
        const std::uint32_t token = list[1 + i / unit] * unit + i % unit;
        for (std::uint32_t is_v = 0; is_v < 2; ++is_v)
          std::copy_n(&pool[((std::size_t{slots[token / 16]} * heads + head) * 32 + is_v * 16 + token % 16) * dim], dim,
                      &expected[((std::size_t{head} * 2 + is_v) * most * unit + i) * dim]);
      }
    }
    EXPECT_EQ(staged.values(), expected) << unit;

    // By DMA the host must have the list.
    const std::uint32_t listed = count.values()[0];
    const Words from_list = from.first(listed), to_list = to.first(listed);
    const PinnedMemory host_from = pinned(from_list.data(), listed * 4), host_to = pinned(to_list.data(), listed * 4);
    move.to = by_dma.data();
    move.from_slots = host_from.as<std::uint32_t>();
    move.to_slots = host_to.as<std::uint32_t>();
    move.count = listed;
    move.slots_on_host = true;
    move.device_count = nullptr;
    gather_cuda(move, GatherWay::dma, {});
    EXPECT_EQ(by_dma.values(), expected) << unit;
  }
  EXPECT_THROW(list_units_cuda(nullptr, 1, 1, 24, 1, {}, {}), LogicError);
  EXPECT_THROW(list_units_cuda(nullptr, 0, 1, 1, 1, {}, {}), LogicError);
}

TEST_F(FetchCudaTest, PiecesThatHaveNoNumberAreRefused) {
  constexpr std::uint32_t kMost = 1u << 24;  // pages of 8 KV heads: 2^32 of their vectors
  check_piece_numbers(kMost, 8, 32);
  EXPECT_THROW(list_units(nullptr, 1, 8, 1, kMost + 1, {}), InputError);
  EXPECT_THROW(list_units_cuda(nullptr, 1, 8, 1, kMost + 1, {}, {}), InputError);
  EXPECT_THROW(list_pages_cuda(nullptr, nullptr, 1, 8, 1, (1u << 29) + 1, {}, {}), InputError);
  Words nothing(4);
  const UnitFetch none{nothing.data(), 0, nothing.data(), 0};
  list_units(&none, 1, 1, 32, kMost, {&nothing[1], &nothing[2], &nothing[3], 0});
  EXPECT_EQ(nothing[3], 0u) << "larger pieces are fewer";
}

// As many as go with a launch, more, and as many as a kernel takes.
TEST_F(FetchCudaTest, PiecesOfUnevenListsLandWhereTheirSlotsSay) {
  for (const std::uint32_t n : {1u, 2u, 14u, 15u, kMostLists - 1, kMostLists}) {
    const UnevenLists uneven(n);
    std::size_t bytes = 0;
    for (const Pieces& list : uneven.lists) bytes += list.bytes * list.count;
    const OnDevice<Pieces> far(uneven.lists);
    const auto lists = n <= LaunchArray<Pieces>::kHere ? LaunchArray<Pieces>(std::span<const Pieces>(uneven.lists))
                                                       : LaunchArray<Pieces>(far.data());
    gather_lists_cuda(lists, n, bytes, {});
    EXPECT_EQ(uneven.target.values(), uneven.expected) << n;
  }
}

class FetchTypeTest : public CudaTypeTest {};
TANDEM_EACH_TYPE(FetchTypeTest);

/// Digests of a list's blocks: [min, max][room][D] of one KV head.
std::vector<char> digests_of(PagedBatch& batch, const std::vector<PageEntry>& pages, std::uint32_t head,
                             std::uint32_t per_block, std::uint32_t blocks, std::uint32_t room) {
  const std::size_t vector = batch.dim * size_of(batch.type);
  std::vector<char> digests(2 * room * vector, char(0xff));
  for (std::uint32_t b = 0; b < blocks; ++b) {
    std::vector<char> keys;
    const auto end = std::min<std::size_t>(pages.size(), (b + 1) * per_block);
    for (std::size_t p = std::size_t{b} * per_block; p < end; ++p) {
      const char* k = batch.vector(pages[p].slot, head, false, 0);
      keys.insert(keys.end(), k, k + pages[p].tokens * vector);
    }
    build_digest(keys.data(), batch.type, static_cast<std::uint32_t>(keys.size() / vector), batch.dim,
                 &digests[b * vector], &digests[(room + b) * vector]);
  }
  return digests;
}

/// What each query head of a group chose by its blocks' bounds, as masks of the list's pages.
void mask_pages(const std::vector<char>& digests, const float* q, const PagedBatch& batch, std::uint32_t per_block,
                std::uint32_t blocks, std::uint32_t room, const Words& keep, std::vector<PageEntry>& pages) {
  for (PageEntry& page : pages) page.head_mask = 0;
  for (std::uint32_t g = 0; g < batch.group; ++g) {
    std::vector<float> scores(blocks);
    score_blocks_reference(q + std::size_t{g} * batch.dim, digests.data(),
                           digests.data() + room * batch.dim * size_of(batch.type), blocks, {1, batch.dim, batch.type},
                           scores.data());
    Words best(blocks);
    top_k(scores.data(), blocks, keep[g], best.data());
    for (std::uint32_t i = 0; i < std::min(keep[g], blocks); ++i)
      for (std::uint32_t p = best[i] * per_block; p < std::min<std::size_t>(pages.size(), (best[i] + 1) * per_block);
           ++p)
        pages[p].head_mask |= 1u << g;
  }
}

TEST_P(FetchTypeTest, WhatTheDeviceSelectedIsFetchedAndAttended) {
  Random random(3);
  const std::uint32_t heads = 2, group = 3, dim = 64, per_block = 2, tokens = 425, rows = 2;
  PagedBatch batch(random, type(), heads, group, dim, 60, 2);
  for (std::uint32_t row = 0; row < rows; ++row) batch.lists.push_back(batch.tokens(random, tokens));
  const std::uint32_t pages = 27, blocks = 14, keep = 4, capacity = group * keep * per_block;
  const auto q = queries(random, batch);
  const OnDevice<float> query(q);
  std::vector<OnDevice<std::uint32_t>> held_slots, held_chosen;
  std::vector<BlockSelection> selections;
  PagedBatch wanted = batch;
  wanted.per_kv_head = true;
  wanted.lists.clear();
  for (std::uint32_t row = 0; row < rows; ++row) {
    Words slots, chosen;
    for (const PageEntry& page : batch.lists[row]) slots.push_back(page.slot);
    ASSERT_EQ(slots.size(), pages);
    for (std::uint32_t head = 0; head < heads; ++head) {
      const auto digests = digests_of(batch, batch.lists[row], head, per_block, blocks, blocks);
      wanted.lists.push_back(batch.lists[row]);
      mask_pages(digests, &q[((std::size_t{row} * heads + head) * group) * dim], batch, per_block, blocks, blocks,
                 Words(group, keep), wanted.lists.back());
      for (std::uint32_t g = 0; g < group; ++g) {
        chosen.push_back(keep);
        for (std::uint32_t b = 0; b < blocks; ++b)
          if ((wanted.lists.back()[b * per_block].head_mask >> g & 1u) != 0) chosen.push_back(b);
        chosen.resize((chosen.size() + blocks) / (1 + blocks) * (1 + blocks));
      }
    }
    held_slots.emplace_back(slots);
    held_chosen.emplace_back(chosen);
    selections.push_back({held_chosen.back().data(), held_slots.back().data(), blocks, per_block, tokens, blocks});
  }
  const OnDevice<BlockSelection> selection(selections);
  const OnDevice<PageEntry> entries(std::vector<PageEntry>(std::size_t{rows} * heads * capacity));
  const std::uint32_t room = heads * capacity;
  const OnDevice<std::uint32_t> counts(rows * heads), from(rows * room), to(rows * room), count(rows);
  pages_of_selection_cuda(selection.data(), rows, heads, group, 1, true, capacity, entries.data(), counts.data(), {});
  list_pages_cuda(entries.data(), counts.data(), rows, heads, capacity, 60,
                  {from.data(), to.data(), count.data(), room}, {});
  number_pages_cuda(entries.data(), counts.data(), rows * heads, capacity, {});
  const PinnedMemory host = pinned(batch.pages.data(), batch.pages.size());
  const std::size_t page_bytes = std::size_t{32} * dim * size_of(type());
  std::vector<OnDevice<char>> staged;  // of each row
  std::vector<RowPages> bases;
  std::vector<Pieces> moves;
  for (std::uint32_t row = 0; row < rows; ++row) {
    staged.emplace_back(std::vector<char>(room * page_bytes, char(0xff)));
    bases.push_back({staged.back().data()});
    Pieces& move = moves.emplace_back();
    move.from = host.as<>();
    move.to = staged.back().data();
    move.from_stride = move.to_stride = move.bytes = page_bytes;
    move.from_slots = from.data() + row * room;
    move.to_slots = to.data() + row * room;
    move.count = room;
    move.slots_on_host = false;
    move.device_count = count.data() + row;
  }
  gather_lists_cuda(LaunchArray<Pieces>(std::span<const Pieces>(moves)), rows, rows * room * page_bytes, {});
  const OnDevice<RowPages> of_rows(bases);
  KvPages landed{staged.front().data(), type(), heads, dim};
  landed.of_rows = of_rows.data();
  const AttentionPlan plan = plan_paged_attention(Words(rows * heads, capacity), rows, heads, true);
  const Attended result = attend(plan, rows, group, query, landed, {entries.data(), counts.data(), capacity, true});
  expect_agrees(result, expected(wanted, q), kTolerance);
}

TEST_P(FetchTypeTest, ATaskOfTheQueueReadsDigestsAndPagesOverTheLink) {
  Random random(5);
  const std::uint32_t heads = 2, group = 3, dim = 64, tokens = 700, rows = 2;
  PagedBatch batch(random, type(), heads, group, dim, 100, 2);
  for (std::uint32_t row = 0; row < rows; ++row) batch.lists.push_back(batch.tokens(random, tokens));
  const auto q = queries(random, batch);
  const OnDevice<float> query(q);
  // Three of the four KV heads have a task, each with blocks of its own size and as many of them as each head needs.
  struct Task {
    std::uint32_t row, head, per_block;
    Words keep;
  };
  const Task tasks[] = {{0, 1, 1, {5, 0, 20}}, {1, 0, 8, {2, 1, 9}}, {1, 1, 2, {0, 3, 0}}};
  PagedBatch wanted = batch;
  wanted.per_kv_head = true;
  wanted.lists.assign(rows * heads, {});
  std::vector<PinnedMemory> digests;
  std::vector<OnDevice<std::uint32_t>> held;
  std::vector<OnDevice<float>> scores;
  std::vector<BlockScores> score_rows;
  std::vector<TopKRow> best;
  std::vector<BlockSelection> selections(rows * heads);  // without blocks where there is no task
  std::vector<AttentionTask> work;
  std::uint32_t capacity = 0, most_blocks = 0;
  for (const Task& task : tasks) {
    const std::uint32_t pages = (tokens + 15) / 16, blocks = (pages + task.per_block - 1) / task.per_block;
    const std::uint32_t room = blocks + 5, list = task.row * heads + task.head;
    const auto values = digests_of(batch, batch.lists[task.row], task.head, task.per_block, blocks, room);
    digests.push_back(pinned(values.data(), values.size()));
    const std::size_t at = std::size_t{list} * group * dim;
    wanted.lists[list] = batch.lists[task.row];
    mask_pages(values, &q[at], batch, task.per_block, blocks, room, task.keep, wanted.lists[list]);
    scores.emplace_back(std::size_t{group} * blocks);
    score_rows.push_back({query.data() + at, digests.back().as<>(), blocks, scores.back().data(), room});
    held.emplace_back(group * (1 + blocks));
    std::uint32_t* const chosen = held.back().data();
    for (std::uint32_t g = 0; g < group; ++g)
      best.push_back({scores.back().data() + g * blocks, blocks, task.keep[g], chosen + g * (1 + blocks)});
    Words slots;
    for (const PageEntry& page : batch.lists[task.row]) slots.push_back(page.slot);
    held.emplace_back(slots);
    selections[list] = {chosen, held.back().data(), blocks, task.per_block, tokens, blocks};
    const std::uint32_t most = std::min(blocks, std::accumulate(task.keep.begin(), task.keep.end(), 0u));
    work.push_back({task.row, task.head, most * task.per_block});
    capacity = std::max(capacity, most * task.per_block);
    most_blocks = std::max(most_blocks, blocks);
  }
  const OnDevice<BlockScores> on_device(score_rows);
  score_blocks_cuda(on_device.data(), static_cast<std::uint32_t>(score_rows.size()), most_blocks, 1,
                    {group, dim, type()}, {});
  const OnDevice<TopKRow> best_rows(best);
  top_k_cuda(best_rows.data(), static_cast<std::uint32_t>(best.size()), 1, {});
  const OnDevice<BlockSelection> selection(selections);
  const OnDevice<PageEntry> entries(std::size_t{rows} * heads * capacity);
  const OnDevice<std::uint32_t> counts(rows * heads);
  pages_of_selection_cuda(selection.data(), rows * heads, 1, group, 1, true, capacity, entries.data(), counts.data(),
                          {});
  const PinnedMemory host = pinned(batch.pages.data(), batch.pages.size());
  const AttentionPlan plan = plan_attention_tasks(work);
  const Attended result = attend(plan, rows, group, query, {host.as<>(), type(), heads, dim},
                                 {entries.data(), counts.data(), capacity, true});
  const Attended oracle = expected(wanted, q);
  for (const Task& task : tasks) {
    const std::size_t head = (std::size_t{task.row} * heads + task.head) * group;
    const auto part = [&](const std::vector<float>& all, std::size_t width) {
      const auto first = all.begin() + static_cast<std::ptrdiff_t>(head * width);
      return std::vector<float>(first, first + static_cast<std::ptrdiff_t>(group * width));
    };
    expect_agrees({part(result.o, dim), part(result.lse, 1)}, {part(oracle.o, dim), part(oracle.lse, 1)}, kTolerance);
  }
  // Whoever has no task is left alone.
  EXPECT_EQ(counts.values()[0], 0u);
  for (std::uint32_t i = 0; i < group * dim; ++i) EXPECT_TRUE(std::isnan(result.o[i]));
}

}  // namespace
}  // namespace tandem
