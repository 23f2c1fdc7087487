// Paged decode attention, token scores and merges on the GPU or its emulation: masks, empty sets, extreme scores and
// what the results may not depend on. eval/kernels/attention_cases.cc compares more shapes with float64.
#include "engine/kernels/paged_attention.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "engine/kernels/attention.h"
#include "engine/kernels/digest.h"
#include "engine/kernels/merge.h"
#include "engine/kernels/topk.h"
#include "tests/engine/kernels/cuda_test.h"

namespace tandem {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// A batch over pages in random slots. What no list entry holds is NaN.
struct Batch {
  Batch(Random& random, DType kv_type, std::uint32_t kv_heads, std::uint32_t heads_per_group, std::uint32_t d,
        std::uint32_t room, float key_scale = 1)
      : type(kv_type), heads(kv_heads), group(heads_per_group), dim(d), slots(room), scale(key_scale) {
    pages.assign(std::size_t{slots} * heads * 2 * 16 * dim * size_of(type), char(0xff));
    free.resize(slots);
    std::iota(free.begin(), free.end(), 0u);
    for (std::size_t i = free.size(); i > 1; --i) std::swap(free[i - 1], free[random.below(std::uint32_t(i))]);
  }

  char* vector(std::uint32_t slot, std::uint32_t head, bool value, std::uint32_t token) {
    return pages.data() + (((std::size_t{slot} * heads + head) * 2 + value) * 16 + token) * dim * size_of(type);
  }
  /// A list entry over a fresh page with random numbers in its span.
  PageEntry page(Random& random, std::uint32_t first, std::uint32_t tokens, std::uint32_t mask = ~0u) {
    const std::uint32_t slot = free.back();
    free.pop_back();
    for (std::uint32_t h = 0; h < heads; ++h) {
      for (std::uint32_t t = first; t < first + tokens; ++t) {
        from_f32(random.normals(dim, scale).data(), type, dim, vector(slot, h, false, t));
        from_f32(random.normals(dim).data(), type, dim, vector(slot, h, true, t));
      }
    }
    return {slot, static_cast<std::uint16_t>(first), static_cast<std::uint16_t>(tokens), mask};
  }
  std::vector<PageEntry> tokens(Random& random, std::uint32_t count) {
    std::vector<PageEntry> list;
    for (; count > 0; count -= std::min(count, 16u)) list.push_back(page(random, 0, std::min(count, 16u)));
    return list;
  }
  void fill(std::uint32_t slot, std::uint32_t token, float value) {
    const std::vector<float> key(dim, value);
    for (std::uint32_t h = 0; h < heads; ++h) from_f32(key.data(), type, dim, vector(slot, h, false, token));
  }

  std::size_t rows() const { return per_kv_head ? lists.size() / heads : lists.size(); }
  const std::vector<PageEntry>& list(std::size_t row, std::size_t head) const {
    return lists[per_kv_head ? row * heads + head : row];
  }
  std::vector<KvSpan> spans(std::size_t row, std::uint32_t head) {
    std::vector<KvSpan> out;
    for (const PageEntry& e : list(row, head))
      out.push_back({vector(e.slot, head, false, e.first), vector(e.slot, head, true, e.first), e.tokens, e.head_mask});
    return out;
  }

  DType type;
  std::uint32_t heads, group, dim, slots;
  float scale;
  std::vector<char> pages;
  std::vector<std::uint32_t> free;
  bool per_kv_head = false;
  std::vector<std::vector<PageEntry>> lists;
};

/// The batch's lists and pages on the device.
struct DeviceBatch {
  explicit DeviceBatch(const Batch& batch, std::uint32_t extra = 0) : pages(batch.pages) {
    for (const auto& list : batch.lists) capacity = std::max(capacity, static_cast<std::uint32_t>(list.size()) + extra);
    std::vector<PageEntry> all(batch.lists.size() * capacity, PageEntry{0xfffffffu, 0, 16, ~0u});
    for (std::size_t l = 0; l < batch.lists.size(); ++l) {
      std::copy(batch.lists[l].begin(), batch.lists[l].end(), all.begin() + std::ptrdiff_t(l * capacity));
      counts.push_back(static_cast<std::uint32_t>(batch.lists[l].size()));
    }
    entries = OnDevice<PageEntry>(all);
    device_counts = OnDevice<std::uint32_t>(counts);
    kv = {pages.data(), batch.type, batch.heads, batch.dim};
    lists = {entries.data(), device_counts.data(), capacity, batch.per_kv_head};
  }
  std::uint32_t capacity = 0;
  std::vector<std::uint32_t> counts;
  OnDevice<char> pages;
  OnDevice<PageEntry> entries;
  OnDevice<std::uint32_t> device_counts;
  KvPages kv;
  PageLists lists;
};

struct Result {
  std::vector<float> o, lse;
};

Result attend(const AttentionPlan& plan, std::uint32_t rows, std::uint32_t group, const OnDevice<float>& q,
              const KvPages& kv, const PageLists& lists) {
  const OnDevice<AttentionWork> work(plan.work);
  const OnDevice<AttentionMerge> merges(plan.merges);
  const std::size_t heads = std::size_t{rows} * kv.kv_heads * group;
  const OnDevice<float> o(heads * kv.dim), lse(heads), parts(paged_attention_scratch(plan, group, kv.dim));
  PagedAttention a;
  a.q = q.data();
  a.group = group;
  a.kv = kv;
  a.lists = lists;
  a.work = work.data();
  a.merges = merges.data();
  a.work_count = static_cast<std::uint32_t>(plan.work.size());
  a.merge_count = static_cast<std::uint32_t>(plan.merges.size());
  a.part_count = plan.parts;
  a.o = o.data();
  a.lse = lse.data();
  a.parts = parts.data();
  paged_attention_cuda(a, {});
  return {o.values(), lse.values()};
}

/// `extra`: how much larger than the lists' counts the plan takes them to be.
Result attend(const Batch& batch, const std::vector<float>& q, std::uint32_t extra = 0) {
  const DeviceBatch device(batch, extra);
  const auto rows = static_cast<std::uint32_t>(batch.rows());
  std::vector<std::uint32_t> most = device.counts;
  for (std::uint32_t& count : most) count += extra;
  return attend(plan_paged_attention(most, rows, batch.heads, batch.per_kv_head), rows, batch.group, OnDevice<float>(q),
                device.kv, device.lists);
}

Result expected(Batch& batch, const std::vector<float>& q) {
  const std::size_t heads = batch.rows() * batch.heads * batch.group;
  Result result{std::vector<float>(heads * batch.dim), std::vector<float>(heads)};
  for (std::size_t row = 0; row < batch.rows(); ++row) {
    for (std::uint32_t h = 0; h < batch.heads; ++h) {
      const std::size_t head = (row * batch.heads + h) * batch.group;
      partial_attention_reference(&q[head * batch.dim], batch.spans(row, h), {batch.group, batch.dim, batch.type},
                                  &result.o[head * batch.dim], &result.lse[head]);
    }
  }
  return result;
}

void expect_agrees(const Result& result, const Result& oracle, double tolerance) {
  expect_near(result.o, oracle.o, tolerance);
  for (std::size_t h = 0; h < result.lse.size(); ++h) {
    if (oracle.lse[h] == -kInfinity)
      EXPECT_EQ(result.lse[h], -kInfinity);
    else
      EXPECT_NEAR(result.lse[h], oracle.lse[h], tolerance * std::max(1.0f, std::fabs(oracle.lse[h])));
  }
}

std::vector<float> queries(Random& random, const Batch& batch) {
  return random.normals(batch.rows() * batch.heads * batch.group * batch.dim);
}

// f32 sums in another order than the oracle's; on a GPU tensor cores also cut off what a sum in f32 would round.
constexpr double kTolerance = 3e-5;

class PagedAttentionTest : public CudaTypeTest {};
TANDEM_EACH_TYPE(PagedAttentionTest);

TEST_P(PagedAttentionTest, PartsOfPagesAndMasks) {
  Random random(3);
  for (const std::uint32_t dim : {64u, 72u}) {
    Batch batch(random, type(), 2, 5, dim, 60);
    batch.per_kv_head = true;
    for (std::uint32_t l = 0; l < 4; ++l) {
      batch.lists.emplace_back();
      for (std::uint32_t e = 0; e < 3 + 4 * l; ++e) {
        const std::uint32_t first = random.below(16), tokens = random.below(17 - first);
        batch.lists.back().push_back(batch.page(random, first, tokens, random.below(3) ? random.below(32) : ~0u));
      }
    }
    const auto q = queries(random, batch);
    expect_agrees(attend(batch, q), expected(batch, q), kTolerance);
  }
}

TEST_P(PagedAttentionTest, EmptyListsGiveZeroAndMinusInfinity) {
  Random random(4);
  for (const std::uint32_t dim : {128u, 40u}) {
    Batch batch(random, type(), 2, 3, dim, 20);
    batch.lists.emplace_back();                                                          // nothing
    batch.lists.push_back({batch.page(random, 0, 16, 0), batch.page(random, 3, 9, 8)});  // nobody of three heads
    batch.lists.push_back({batch.page(random, 4, 0)});                                   // no token
    batch.lists.push_back({batch.page(random, 0, 16, 2)});                               // the middle head alone
    batch.lists.push_back({PageEntry{0xfffffffu, 0, 16, 0}});                            // a slot that is not there
    const auto q = queries(random, batch);
    for (const std::uint32_t extra : {0u, 5u, 70u}) {  // 70: several splits without a page
      const Result result = attend(batch, q, extra);
      expect_agrees(result, expected(batch, q), kTolerance);
      for (std::size_t i = 0; i < 2 * 3 * dim; ++i) ASSERT_EQ(result.o[i], 0.0f);
      EXPECT_EQ(result.lse[0], -kInfinity);
    }
  }
}

TEST_P(PagedAttentionTest, TensorCoresRefuseOddAddresses) {
  const OnDevice<char> memory(64);
  const auto* const odd = reinterpret_cast<const float*>(memory.data() + 4);
  auto* const even = reinterpret_cast<float*>(memory.data());
  PagedAttention a;  // no work
  a.kv = {memory.data(), type(), 1, 64};
  a.q = odd;
  if (type() == DType::f32) {
    paged_attention_cuda(a, {});  // the plain kernel takes any float
  } else {
    EXPECT_THROW(paged_attention_cuda(a, {}), LogicError);
    EXPECT_THROW(paged_token_scores_cuda(odd, 0, 1, a.kv, {}, even, {}), LogicError);
  }
  a.q = even;
  paged_attention_cuda(a, {});
  a.kv.pages = memory.data() + 8;
  EXPECT_THROW(paged_attention_cuda(a, {}), LogicError);
  EXPECT_THROW(paged_token_scores_cuda(even, 0, 1, a.kv, {}, even, {}), LogicError);
}

TEST_P(PagedAttentionTest, OneTokenIsItsValue) {
  Random random(5);
  Batch batch(random, type(), 1, 4, 128, 4);
  batch.lists.push_back({batch.page(random, 11, 1)});
  const auto q = queries(random, batch);
  const Result result = attend(batch, q);
  std::vector<float> value(128);
  to_f32(batch.vector(batch.lists[0][0].slot, 0, true, 11), type(), 0, 128, value.data());
  for (std::size_t g = 0; g < 4; ++g)
    expect_near({result.o.begin() + std::ptrdiff_t(g * 128), result.o.begin() + std::ptrdiff_t((g + 1) * 128)}, value,
                1e-6);
}

TEST_P(PagedAttentionTest, ARowsBitsDoNotDependOnTheBatch) {
  Random random(6);
  Batch batch(random, type(), 2, 3, 64, 140);
  for (const std::uint32_t tokens : {600u, 20u, 100u, 1000u}) batch.lists.push_back(batch.tokens(random, tokens));
  const auto q = queries(random, batch);
  const Result together = attend(batch, q);
  const std::size_t width = 2 * 3 * 64;
  const auto all = batch.lists;
  for (std::size_t row = 0; row < all.size(); ++row) {
    batch.lists = {all[row]};
    const auto begin = std::ptrdiff_t(row * width);
    const Result alone = attend(batch, {q.begin() + begin, q.begin() + begin + std::ptrdiff_t(width)});
    EXPECT_TRUE(same_bits(alone.o, {together.o.begin() + begin, together.o.begin() + begin + std::ptrdiff_t(width)}));
    EXPECT_TRUE(same_bits(alone.lse, {together.lse.begin() + std::ptrdiff_t(row * 6),
                                      together.lse.begin() + std::ptrdiff_t(row * 6 + 6)}));
  }
}

TEST_P(PagedAttentionTest, RisingAndFallingScores) {
  Random random(7);
  for (const float step : {0.5f, 3.0f, -0.5f, 40.0f}) {
    Batch batch(random, type(), 1, 1, 64, 14);
    batch.lists.push_back(batch.tokens(random, 200));
    for (std::uint32_t t = 0; t < 200; ++t) batch.fill(batch.lists[0][t / 16].slot, t % 16, step * float(t) / 8);
    const std::vector<float> q(64, 1.0f);
    expect_agrees(attend(batch, q), expected(batch, q), kTolerance);
  }
}

TEST_P(PagedAttentionTest, LargeAndInfiniteScoresNeverGiveNan) {
  Random random(8);
  for (const std::uint32_t dim : {64u, 40u}) {
    Batch batch(random, type(), 1, 1, dim, 4);
    batch.lists.push_back(batch.tokens(random, 20));
    const std::vector<float> q(dim, 1.0f);
    const std::uint32_t slot = batch.lists[0][0].slot;
    const std::vector<float> large =
        type() == DType::f16 ? std::vector{1e4f, 6e4f} : std::vector{1e4f, 1e20f, 1e38f, 3e38f};
    for (const float big : large) {
      batch.fill(slot, 4, big);
      batch.fill(slot, 9, -big);
      const Result result = attend(batch, q);
      std::vector<float> value(dim);
      to_f32(batch.vector(slot, 0, true, 4), type(), 0, dim, value.data());
      expect_near(result.o, value, 1e-6);
      EXPECT_GE(result.lse[0], big * 6 > 1e38f ? 2.9e38f : big);
    }
    batch.fill(slot, 4, -kInfinity);
    batch.fill(slot, 9, 0);
    const Result with = attend(batch, q);
    expect_agrees(with, expected(batch, q), kTolerance);
    batch.lists[0] = {PageEntry{slot, 4, 1, ~0u}};
    const Result alone = attend(batch, q);
    EXPECT_EQ(alone.lse[0], -kInfinity);
    EXPECT_EQ(alone.o, std::vector<float>(dim, 0.0f));
  }
}

TEST_P(PagedAttentionTest, TokenScoresAgreeWithFloat64) {
  Random random(9);
  const struct {
    std::uint32_t dim, heads, group;
  } cases[] = {{64, 2, 1}, {96, 1, 4}, {128, 1, 9}, {256, 1, 16}, {40, 2, 3}, {64, 1, 17}};
  for (const auto& c : cases) {
    Batch batch(random, type(), c.heads, c.group, c.dim, 60, 2);
    batch.lists = {batch.tokens(random, 100), {}, batch.tokens(random, 3)};
    batch.lists[1] = {batch.page(random, 5, 7, 0), batch.page(random, 0, 16, 1)};
    const auto q = queries(random, batch);
    const DeviceBatch device(batch, 1);
    const OnDevice<float> query(q);
    const std::size_t columns = std::size_t{16} * device.capacity;
    const OnDevice<float> scores(batch.rows() * c.heads * c.group * columns);
    paged_token_scores_cuda(query.data(), 3, c.group, device.kv, device.lists, scores.data(), {});
    const std::vector<float> actual = scores.values();
    for (std::size_t row = 0; row < 3; ++row) {
      for (std::uint32_t h = 0; h < c.heads; ++h) {
        std::vector<KvSpan> spans = batch.spans(row, h);
        std::size_t tokens = 0;
        for (const KvSpan& span : spans) tokens += span.tokens;
        std::vector<float> dense(c.group * tokens);
        const std::size_t head = (row * c.heads + h) * c.group;
        token_scores_reference(&q[head * c.dim], spans, {c.group, c.dim, type()}, dense.data());
        const float* next = dense.data();
        for (std::uint32_t g = 0; g < c.group; ++g) {
          for (std::size_t column = 0; column < columns; ++column) {
            const float score = actual[(head + g) * columns + column];
            const auto& list = batch.list(row, h);
            const bool held = column / 16 < list.size() && column % 16 >= list[column / 16].first &&
                              column % 16 < std::size_t{list[column / 16].first} + list[column / 16].tokens;
            if (held) {
              ASSERT_NEAR(score, *next, kTolerance * std::max(1.0f, std::fabs(*next)));
              ++next;
            } else {
              ASSERT_EQ(score, -kInfinity);
            }
          }
        }
      }
    }
  }
}

TEST(PagedAttentionPlan, CoversEveryEntryOnceLongestFirst) {
  Random random(10);
  for (const bool per_kv_head : {false, true}) {
    const std::uint32_t rows = 5, heads = 3;
    std::vector<std::uint32_t> entries(rows * (per_kv_head ? heads : 1));
    for (std::uint32_t& count : entries) count = random.below(4) ? random.below(3000) : random.below(3);
    const AttentionPlan plan = plan_paged_attention(entries, rows, heads, per_kv_head);
    std::vector<std::vector<int>> seen(rows * heads);
    std::vector<int> parts(plan.parts);
    std::uint32_t before = kMaxSplitEntries;
    for (const AttentionWork& work : plan.work) {
      ASSERT_LE(work.entries, before);
      before = work.entries;
      std::vector<int>& list = seen[work.row * heads + work.kv_head];
      list.resize(entries[per_kv_head ? work.row * heads + work.kv_head : work.row]);
      for (std::uint32_t e = 0; e < work.entries; ++e) ++list[work.first + e];
      if (work.part != AttentionWork::kWhole) ++parts[work.part];
    }
    for (const auto& list : seen) EXPECT_EQ(std::count(list.begin(), list.end(), 1), std::ptrdiff_t(list.size()));
    EXPECT_EQ(std::count(parts.begin(), parts.end(), 1), std::ptrdiff_t(parts.size()));
    std::uint32_t merged = 0;
    for (const AttentionMerge& merge : plan.merges) {
      EXPECT_EQ(merge.first_part, merged);
      EXPECT_GT(merge.parts, 1u);
      merged += merge.parts;
    }
    EXPECT_EQ(merged, plan.parts);
  }
  EXPECT_THROW(plan_paged_attention(std::vector<std::uint32_t>{1}, 1, 2, true), LogicError);
}

class PageSelectionTest : public CudaTest {};

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

TEST_P(PagedAttentionTest, WhatTheDeviceSelectedIsAttendedThere) {
  Random random(13);
  const std::uint32_t heads = 2, group = 4, dim = 64, tokens = 310, blocks = 20, keep = 5;
  Batch batch(random, type(), heads, group, dim, blocks, 2);
  batch.lists.push_back(batch.tokens(random, tokens));
  const auto q = queries(random, batch);
  std::vector<std::uint32_t> slots;
  for (const PageEntry& entry : batch.lists[0]) slots.push_back(entry.slot);
  const DeviceBatch device(batch);
  const OnDevice<float> query(q), scores(std::size_t{heads} * group * blocks);
  const OnDevice<std::uint32_t> device_slots(slots);
  const OnDevice<char> digests(std::size_t{heads} * 2 * blocks * dim * size_of(type()));
  build_digests_cuda(device.kv, device_slots.data(), tokens, 1, digests.data(), {});
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
  const Result result = attend(plan, 1, group, query, device.kv, {entries.data(), counts.data(), capacity, true});
  // The oracle attends the blocks that are best by the CPU's scores.
  Batch wanted = batch;
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

class MergeCudaTest : public CudaTest {};

TEST_F(MergeCudaTest, AgreesWithTheCpu) {
  Random random(12);
  const struct {
    std::uint32_t parts, rows, dim;
  } cases[] = {{0, 2, 64}, {1, 3, 128}, {2, 4, 72}, {7, 3, 256}, {40, 2, 300}, {700, 1, 33}};
  for (const auto& c : cases) {
    std::vector<OnDevice<float>> o, lse;
    std::vector<std::vector<float>> host_o, host_lse;
    std::vector<const float*> o_at, lse_at, host_o_at, host_lse_at;
    for (std::uint32_t p = 0; p < c.parts; ++p) {
      host_o.push_back(random.normals(std::size_t{c.rows} * c.dim));
      host_lse.push_back(random.normals(c.rows, p % 3 == 0 ? 5 : 1e4f));
      for (std::uint32_t r = 0; r < c.rows; ++r) {
        if (r != 0 && random.below(4) != 0) continue;  // row 0 is empty in all
        host_lse.back()[r] = -kInfinity;
        std::fill_n(host_o.back().begin() + static_cast<std::ptrdiff_t>(std::size_t{r} * c.dim), c.dim, std::nanf(""));
      }
    }
    for (std::uint32_t p = 0; p < c.parts; ++p) {
      o.emplace_back(host_o[p]);
      lse.emplace_back(host_lse[p]);
      o_at.push_back(o.back().data());
      lse_at.push_back(lse.back().data());
      host_o_at.push_back(host_o[p].data());
      host_lse_at.push_back(host_lse[p].data());
    }
    const OnDevice<const float*> o_list(o_at), lse_list(lse_at);
    const OnDevice<float> out(std::size_t{c.rows} * c.dim), out_lse(c.rows);
    Result oracle{std::vector<float>(std::size_t{c.rows} * c.dim), std::vector<float>(c.rows)};
    merge_partials(host_o_at.data(), host_lse_at.data(), c.parts, c.rows, c.dim, oracle.o.data(), oracle.lse.data());
    merge_partials_cuda(o_list.data(), lse_list.data(), c.parts, c.rows, c.dim, out.data(), out_lse.data(), {});
    expect_agrees({out.values(), out_lse.values()}, oracle, 1e-5);
    if (c.parts == 0) continue;
    float* const first = o[0].data();  // the output may be a part
    merge_partials_cuda(o_list.data(), lse_list.data(), c.parts, c.rows, c.dim, first, nullptr, {});
    expect_near(o[0].values(), oracle.o, 1e-5);
  }
}

TEST_F(MergeCudaTest, PartsFarApartAndPinnedMemory) {
  const std::uint32_t dim = 128;
  PinnedMemory pinned((dim + 1) * sizeof(float));
  std::fill_n(pinned.as<float>(), dim, 2.0f);
  pinned.as<float>()[dim] = 1e30f;
  const OnDevice<float> o(std::vector<float>(dim, 1.0f)), lse(std::vector<float>{-1e30f});
  const OnDevice<const float*> o_list({o.data(), pinned.as<float>()}), lse_list({lse.data(), pinned.as<float>() + dim});
  const OnDevice<float> out(dim), out_lse(1);
  merge_partials_cuda(o_list.data(), lse_list.data(), 2, 1, dim, out.data(), out_lse.data(), {});
  EXPECT_EQ(out.values(), std::vector<float>(dim, 2.0f));
  EXPECT_EQ(out_lse.values()[0], 1e30f);
}

}  // namespace
}  // namespace tandem
