// Paged decode attention and token scores on the GPU or its emulation: masks, empty sets, extreme scores and what the
// results may not depend on. eval/kernels/attention_cases.cc compares more shapes with float64.
#include "engine/kernels/paged_attention.h"

#include <algorithm>

#include "tests/engine/kernels/paged_batch.h"

namespace tandem {
namespace {

class PagedAttentionTest : public CudaTypeTest {};
TANDEM_EACH_TYPE(PagedAttentionTest);

TEST_P(PagedAttentionTest, PartsOfPagesAndMasks) {
  Random random(3);
  for (const std::uint32_t dim : {64u, 72u}) {
    PagedBatch batch(random, type(), 2, 5, dim, 60);
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
    PagedBatch batch(random, type(), 2, 3, dim, 20);
    batch.lists.emplace_back();                                                          // nothing
    batch.lists.push_back({batch.page(random, 0, 16, 0), batch.page(random, 3, 9, 8)});  // nobody of three heads
    batch.lists.push_back({batch.page(random, 4, 0)});                                   // no token
    batch.lists.push_back({batch.page(random, 0, 16, 2)});                               // the middle head alone
    batch.lists.push_back({PageEntry{0xfffffffu, 0, 16, 0}});                            // a slot that is not there
    const auto q = queries(random, batch);
    for (const std::uint32_t extra : {0u, 5u, 70u}) {  // 70: several splits without a page
      const Attended result = attend(batch, q, extra);
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

// Two pools, of which each row has its pages in one: the same results as from one pool that holds both.
TEST_P(PagedAttentionTest, RowsMayHavePagesInMemoryOfTheirOwn) {
  Random random(6);
  for (const std::uint32_t dim : {64u, 40u}) {
    PagedBatch batch(random, type(), 2, 4, dim, 90);
    for (const std::uint32_t tokens : {700u, 0u, 33u}) batch.lists.push_back(batch.tokens(random, tokens));
    const auto q = queries(random, batch);
    const DeviceBatch device(batch);
    const std::size_t slot = std::size_t{2} * 32 * dim * size_of(type());
    std::vector<char> moved(batch.pages.size() + slot, char(0xff));  // the last row's pages lie a slot further there
    std::copy(batch.pages.begin(), batch.pages.end(), moved.begin() + static_cast<std::ptrdiff_t>(slot));
    const OnDevice<char> other(moved);
    const OnDevice<RowPages> bases(
        std::vector<RowPages>{{device.pages.data()}, {device.pages.data()}, {other.data() + slot}});
    KvPages kv = device.kv;
    kv.pages = nullptr;
    kv.of_rows = bases.data();
    const Attended result =
        attend(plan_paged_attention(device.counts, 3, 2, false), 3, 4, OnDevice<float>(q), kv, device.lists);
    const Attended wanted = attend(batch, q);
    EXPECT_EQ(result.o, wanted.o);
    EXPECT_EQ(result.lse, wanted.lse);
  }
}

// Packed tokens of as many rooms as rows, beside pages: the same bits for attention and for scores of single tokens.
TEST_P(PagedAttentionTest, PackedTokensAreAttendedLikePages) {
  Random random(16);
  const std::vector<std::uint32_t> counts = {700, 0, 33}, rooms = {705, 3, 40};
  for (const std::uint32_t dim : {64u, 40u}) {
    PagedBatch batch(random, type(), 2, 4, dim, 90);
    for (const std::uint32_t tokens : counts) batch.lists.push_back(batch.tokens(random, tokens));
    const auto q = queries(random, batch);
    const DeviceBatch device(batch);
    const OnDevice<float> query(q);
    const std::size_t width = dim * size_of(type());
    std::vector<OnDevice<char>> memory;
    std::vector<RowPages> rows;
    std::vector<WholePages> tokens;
    const OnDevice<std::uint32_t> units(std::vector<std::uint32_t>{100, 0, 33});
    for (std::size_t row = 0; row < counts.size(); ++row) {
      std::vector<char> packed(std::size_t{2} * 2 * rooms[row] * width, char(0xff));
      for (std::uint32_t head = 0; head < 2; ++head) {
        for (std::uint32_t t = 0; t < counts[row]; ++t) {
          for (const bool value : {false, true})
            std::copy_n(batch.vector(batch.lists[row][t / 16].slot, head, value, t % 16), width,
                        packed.data() + ((std::size_t{head} * 2 + (value ? 1 : 0)) * rooms[row] + t) * width);
        }
      }
      memory.emplace_back(packed);
      rows.push_back({memory.back().data(), rooms[row]});
      tokens.push_back(row == 1 ? WholePages{} : WholePages{row == 0 ? 7u : 1u, units.data() + row});
    }
    const OnDevice<RowPages> of_rows(rows);
    const OnDevice<WholePages> packed(tokens);
    const OnDevice<PageEntry> entries(std::size_t{3} * device.capacity);
    const OnDevice<std::uint32_t> listed(3);
    whole_pages_cuda(packed.data(), 3, device.capacity, entries.data(), listed.data(), {});
    EXPECT_EQ(listed.values(), device.counts);
    KvPages kv = device.kv;
    kv.pages = nullptr;
    kv.of_rows = of_rows.data();
    const PageLists lists{entries.data(), listed.data(), device.capacity, false};
    const Attended result = attend(plan_paged_attention(device.counts, 3, 2, false), 3, 4, query, kv, lists);
    const Attended wanted = attend(batch, q);
    EXPECT_EQ(result.o, wanted.o);
    EXPECT_EQ(result.lse, wanted.lse);
    const std::size_t scores = std::size_t{3} * 8 * 16 * device.capacity;
    {  // a list for each KV head of a row
      std::vector<WholePages> twice;
      std::vector<std::uint32_t> most;
      for (std::size_t row = 0; row < counts.size(); ++row) {
        for (const std::uint32_t less : {0u, counts[row] / 2}) {
          twice.push_back({counts[row] - less});
          most.push_back((counts[row] - less + 15) / 16);
        }
      }
      const OnDevice<WholePages> own(twice);
      const OnDevice<PageEntry> own_entries(std::size_t{6} * device.capacity);
      const OnDevice<std::uint32_t> own_counts(6);
      whole_pages_cuda(own.data(), 6, device.capacity, own_entries.data(), own_counts.data(), {});
      PagedBatch by_head = batch;
      by_head.per_kv_head = true;
      by_head.lists.clear();
      for (std::size_t list = 0; list < 6; ++list) {
        std::vector<PageEntry> pages(batch.lists[list / 2].begin(), batch.lists[list / 2].begin() + most[list]);
        if (!pages.empty()) pages.back().tokens = static_cast<std::uint16_t>((twice[list].tokens - 1) % 16 + 1);
        by_head.lists.push_back(pages);
      }
      const Attended of_heads = attend(plan_paged_attention(most, 3, 2, true), 3, 4, query, kv,
                                       {own_entries.data(), own_counts.data(), device.capacity, true});
      const Attended alike = attend(by_head, q);
      EXPECT_EQ(of_heads.o, alike.o);
      EXPECT_EQ(of_heads.lse, alike.lse);
    }
    const OnDevice<float> of_packed(scores), of_pages(scores);
    paged_token_scores_cuda(query.data(), 3, 4, kv, lists, of_packed.data(), {});
    paged_token_scores_cuda(query.data(), 3, 4, device.kv, device.lists, of_pages.data(), {});
    EXPECT_EQ(of_packed.values(), of_pages.values());
  }
}

TEST_P(PagedAttentionTest, OneTokenIsItsValue) {
  Random random(5);
  PagedBatch batch(random, type(), 1, 4, 128, 4);
  batch.lists.push_back({batch.page(random, 11, 1)});
  const auto q = queries(random, batch);
  const Attended result = attend(batch, q);
  std::vector<float> value(128);
  to_f32(batch.vector(batch.lists[0][0].slot, 0, true, 11), type(), 0, 128, value.data());
  for (std::size_t g = 0; g < 4; ++g)
    expect_near({result.o.begin() + std::ptrdiff_t(g * 128), result.o.begin() + std::ptrdiff_t((g + 1) * 128)}, value,
                1e-6);
}

TEST_P(PagedAttentionTest, ARowsBitsDoNotDependOnTheBatch) {
  Random random(6);
  PagedBatch batch(random, type(), 2, 3, 64, 140);
  for (const std::uint32_t tokens : {600u, 20u, 100u, 1000u}) batch.lists.push_back(batch.tokens(random, tokens));
  const auto q = queries(random, batch);
  const Attended together = attend(batch, q);
  const std::size_t width = 2 * 3 * 64;
  const auto all = batch.lists;
  for (std::size_t row = 0; row < all.size(); ++row) {
    batch.lists = {all[row]};
    const auto begin = std::ptrdiff_t(row * width);
    const Attended alone = attend(batch, {q.begin() + begin, q.begin() + begin + std::ptrdiff_t(width)});
    EXPECT_TRUE(same_bits(alone.o, {together.o.begin() + begin, together.o.begin() + begin + std::ptrdiff_t(width)}));
    EXPECT_TRUE(same_bits(alone.lse, {together.lse.begin() + std::ptrdiff_t(row * 6),
                                      together.lse.begin() + std::ptrdiff_t(row * 6 + 6)}));
  }
}

TEST_P(PagedAttentionTest, RisingAndFallingScores) {
  Random random(7);
  for (const float step : {0.5f, 3.0f, -0.5f, 40.0f}) {
    PagedBatch batch(random, type(), 1, 1, 64, 14);
    batch.lists.push_back(batch.tokens(random, 200));
    for (std::uint32_t t = 0; t < 200; ++t) batch.fill(batch.lists[0][t / 16].slot, t % 16, step * float(t) / 8);
    const std::vector<float> q(64, 1.0f);
    expect_agrees(attend(batch, q), expected(batch, q), kTolerance);
  }
}

TEST_P(PagedAttentionTest, LargeAndInfiniteScoresNeverGiveNan) {
  Random random(8);
  for (const std::uint32_t dim : {64u, 40u}) {
    PagedBatch batch(random, type(), 1, 1, dim, 4);
    batch.lists.push_back(batch.tokens(random, 20));
    const std::vector<float> q(dim, 1.0f);
    const std::uint32_t slot = batch.lists[0][0].slot;
    const std::vector<float> large =
        type() == DType::f16 ? std::vector{1e4f, 6e4f} : std::vector{1e4f, 1e20f, 1e38f, 3e38f};
    for (const float big : large) {
      batch.fill(slot, 4, big);
      batch.fill(slot, 9, -big);
      const Attended result = attend(batch, q);
      std::vector<float> value(dim);
      to_f32(batch.vector(slot, 0, true, 4), type(), 0, dim, value.data());
      expect_near(result.o, value, 1e-6);
      EXPECT_GE(result.lse[0], big * 6 > 1e38f ? 2.9e38f : big);
    }
    batch.fill(slot, 4, -kInfinity);
    batch.fill(slot, 9, 0);
    const Attended with = attend(batch, q);
    expect_agrees(with, expected(batch, q), kTolerance);
    batch.lists[0] = {PageEntry{slot, 4, 1, ~0u}};
    const Attended alone = attend(batch, q);
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
    PagedBatch batch(random, type(), c.heads, c.group, c.dim, 60, 2);
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

}  // namespace
}  // namespace tandem
