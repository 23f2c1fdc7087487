// Digests, block scores and top-k on the GPU or its emulation, against the CPU twins.
#include <algorithm>
#include <numeric>

#include "engine/common/error.h"
#include "engine/kernels/digest.h"
#include "engine/kernels/topk.h"
#include "tests/engine/kernels/cuda_test.h"

namespace tandem {
namespace {

using Words = std::vector<std::uint32_t>;

class DigestCudaTest : public CudaTypeTest {};
TANDEM_EACH_TYPE(DigestCudaTest);

TEST_P(DigestCudaTest, EqualsTheCpuBitForBit) {
  Random random(1);
  const struct {
    std::uint32_t dim, heads, tokens, pages_per_block;
  } cases[] = {{64, 2, 160, 1}, {128, 1, 131, 2}, {80, 3, 1, 1}, {5, 1, 100, 4}, {256, 1, 33, 8}};
  for (const auto& c : cases) {
    const std::uint32_t pages = (c.tokens + 15) / 16, block = 16 * c.pages_per_block;
    const std::uint32_t blocks = (c.tokens + block - 1) / block;
    const std::size_t vector = c.dim * size_of(type());
    std::vector<std::uint32_t> slots(pages);
    for (std::uint32_t p = 0; p < pages; ++p) slots[p] = pages - p;  // slot 0 is not used
    std::vector<char> storage((pages + 1) * c.heads * 32 * vector, char(0xff));
    std::vector<char> expected(std::size_t{c.heads} * 2 * blocks * vector);
    for (std::uint32_t h = 0; h < c.heads; ++h) {
      std::vector<char> keys(c.tokens * vector);
      from_f32(random.normals(std::size_t{c.tokens} * c.dim).data(), type(), std::size_t{c.tokens} * c.dim,
               keys.data());
      for (std::uint32_t t = 0; t < c.tokens; ++t)
        std::memcpy(&storage[((std::size_t{slots[t / 16]} * c.heads + h) * 32 + t % 16) * vector], &keys[t * vector],
                    vector);
      for (std::uint32_t b = 0; b < blocks; ++b)
        build_digest(&keys[b * block * vector], type(), std::min(block, c.tokens - b * block), c.dim,
                     &expected[(h * 2 * blocks + b) * vector], &expected[((h * 2 + 1) * blocks + b) * vector]);
    }
    const OnDevice<char> device(storage), digests(expected.size());
    const OnDevice<std::uint32_t> device_slots(slots);
    const KvPages kv{device.data(), type(), c.heads, c.dim};
    const OnDevice<DigestRun> run({{device_slots.data(), digests.data(), c.tokens, blocks}});
    build_digests_cuda(kv, run.data(), 1, c.tokens, c.pages_per_block, {});
    EXPECT_EQ(digests.values(), expected);
    // Behind others that are there already, with room for more; beside a run of one token.
    const std::uint32_t before = 2, room = before + blocks + 3;
    const std::vector<char> marked(std::size_t{c.heads} * 2 * room * vector, 'x');
    std::vector<char> grown = marked;
    for (std::size_t list = 0; list < std::size_t{c.heads} * 2; ++list)
      std::memcpy(&grown[(list * room + before) * vector], &expected[list * blocks * vector], blocks * vector);
    const OnDevice<char> index(marked), single(std::vector<char>(std::size_t{c.heads} * 4 * vector, 'x'));
    const std::vector<DigestRun> runs = {{device_slots.data(), single.data(), 1, 2},
                                         {device_slots.data(), index.data() + before * vector, c.tokens, room}};
    build_digests_cuda(kv, LaunchArray<DigestRun>(std::span<const DigestRun>(runs)), 2, c.tokens, c.pages_per_block,
                       {});
    EXPECT_EQ(index.values(), grown);
    const auto first = single.values();
    for (std::uint32_t h = 0; h < c.heads; ++h) {
      for (std::uint32_t high = 0; high < 2; ++high) {
        const std::size_t at = (std::size_t{h} * 4 + high * 2) * vector;
        EXPECT_EQ(std::memcmp(&first[at], &storage[(std::size_t{slots[0]} * c.heads + h) * 32 * vector], vector), 0);
        EXPECT_EQ(first[at + vector], 'x');
      }
    }
  }
}

// With room for more, and scored by what was made.
TEST_P(DigestCudaTest, MeansEqualTheCpusAndScoreByThem) {
  Random random(7);
  const struct {
    std::uint32_t dim, heads, tokens, pages_per_block;
  } cases[] = {{64, 2, 160, 1}, {128, 1, 131, 2}, {5, 3, 100, 4}};
  for (const auto& c : cases) {
    const std::uint32_t pages = (c.tokens + 15) / 16, block = 16 * c.pages_per_block, group = 2;
    const std::uint32_t blocks = (c.tokens + block - 1) / block, room = blocks + 3;
    const std::size_t vector = c.dim * size_of(type());
    std::vector<std::uint32_t> slots(pages);
    for (std::uint32_t p = 0; p < pages; ++p) slots[p] = pages - p;
    std::vector<char> storage((pages + 1) * c.heads * 32 * vector, char(0xff));
    std::vector<char> expected(std::size_t{c.heads} * room * vector, 'x');
    const auto q = random.normals(std::size_t{c.heads} * group * c.dim);
    std::vector<float> expected_scores(std::size_t{c.heads} * group * blocks);
    for (std::uint32_t h = 0; h < c.heads; ++h) {
      std::vector<char> keys(c.tokens * vector);
      from_f32(random.normals(std::size_t{c.tokens} * c.dim).data(), type(), std::size_t{c.tokens} * c.dim,
               keys.data());
      for (std::uint32_t t = 0; t < c.tokens; ++t)
        std::memcpy(&storage[((std::size_t{slots[t / 16]} * c.heads + h) * 32 + t % 16) * vector], &keys[t * vector],
                    vector);
      for (std::uint32_t b = 0; b < blocks; ++b) {
        const std::uint32_t own = std::min(block, c.tokens - b * block);
        std::vector<float> sums(c.dim, 0.0f);
        add_keys(&keys[b * block * vector], type(), own, c.dim, sums.data());
        mean_digest(sums.data(), own, type(), c.dim, &expected[(h * room + b) * vector]);
      }
      const char* const means = &expected[h * room * vector];
      score_blocks_reference(&q[std::size_t{h} * group * c.dim], means, means, blocks, {group, c.dim, type()},
                             &expected_scores[std::size_t{h} * group * blocks]);
    }
    const OnDevice<char> device(storage), digests(std::vector<char>(expected.size(), 'x'));
    const OnDevice<std::uint32_t> device_slots(slots);
    const OnDevice<DigestRun> run({{device_slots.data(), digests.data(), c.tokens, room}});
    build_digests_cuda({device.data(), type(), c.heads, c.dim}, run.data(), 1, c.tokens, c.pages_per_block, {},
                       DigestKind::mean);
    EXPECT_EQ(digests.values(), expected);
    const OnDevice<float> query(q), scores(expected_scores.size());
    const OnDevice<BlockScores> row({{query.data(), digests.data(), blocks, scores.data(), room}});
    score_blocks_cuda(row.data(), 1, blocks, c.heads, {group, c.dim, type()}, {}, DigestKind::mean);
    expect_near(scores.values(), expected_scores, 1e-5);
  }
}

TEST_P(DigestCudaTest, ScoresAgreeWithFloat64) {
  Random random(2);
  const struct {
    std::uint32_t dim, heads, group;
    std::vector<std::uint32_t> blocks;
  } cases[] = {{64, 2, 1, {70}}, {128, 2, 4, {5, 130, 0}}, {96, 1, 7, {64}},
               {80, 1, 32, {3}}, {36, 1, 5, {20}},         {5, 2, 3, {9, 1}}};
  for (const auto& c : cases) {
    std::vector<OnDevice<float>> q, scores;
    std::vector<OnDevice<char>> digests;
    std::vector<BlockScores> rows;
    std::vector<std::vector<float>> expected;
    for (const std::uint32_t blocks : c.blocks) {
      const std::size_t values = std::size_t{c.heads} * 2 * blocks * c.dim;
      const std::vector<float> query = random.normals(std::size_t{c.heads} * c.group * c.dim);
      std::vector<float> digest = random.normals(values);
      const std::size_t half = std::size_t{blocks} * c.dim;
      for (std::size_t i = 0; i < values; ++i)  // [head][min, max][half]: each minimum below its maximum
        if (i / half % 2 == 0 && digest[i] > digest[i + half]) std::swap(digest[i], digest[i + half]);
      std::vector<char> stored(values * size_of(type()));
      from_f32(digest.data(), type(), values, stored.data());
      expected.emplace_back(std::size_t{c.heads} * c.group * blocks);
      for (std::uint32_t h = 0; h < c.heads && blocks > 0; ++h) {
        const char* low = &stored[std::size_t{h} * 2 * blocks * c.dim * size_of(type())];
        score_blocks_reference(&query[std::size_t{h} * c.group * c.dim], low,
                               low + std::size_t{blocks} * c.dim * size_of(type()), blocks, {c.group, c.dim, type()},
                               &expected.back()[std::size_t{h} * c.group * blocks]);
      }
      q.emplace_back(query);
      digests.emplace_back(stored);
      scores.emplace_back(expected.back().size());
      rows.push_back({q.back().data(), digests.back().data(), blocks, scores.back().data()});
    }
    const OnDevice<BlockScores> device_rows(rows);
    score_blocks_cuda(device_rows.data(), static_cast<std::uint32_t>(rows.size()),
                      *std::max_element(c.blocks.begin(), c.blocks.end()), c.heads, {c.group, c.dim, type()}, {});
    for (std::size_t r = 0; r < rows.size(); ++r) expect_near(scores[r].values(), expected[r], 1e-5);
  }
}

class TopKCudaTest : public CudaTest {};

TEST_F(TopKCudaTest, EqualsTheCpu) {
  Random random(3);
  std::vector<std::vector<float>> scores;
  std::vector<std::uint32_t> sizes, keep;
  for (int round = 0; round < 60; ++round) {
    const std::uint32_t n = random.below(round < 20 ? 8 : 3000);
    keep.push_back(round % 9 == 0 ? n : random.below(n + 3));
    sizes.push_back(n);
    scores.push_back(random.normals(n, round % 4 == 0 ? 1e-3f : 10));
    if (n == 0) continue;
    if (round % 2)
      for (float& score : scores.back()) score = std::round(score);  // many ties, zeros of both signs
    if (round % 5 == 0) scores.back()[random.below(n)] = kInfinity;
    if (round % 7 == 0)
      for (std::uint32_t i = 0; i < n / 2; ++i) scores.back()[random.below(n)] = -kInfinity;
    if (round % 11 == 0)
      for (std::uint32_t i = 0; i < n / 3 + 1; ++i) scores.back()[random.below(n)] = std::nanf("");
  }
  std::vector<OnDevice<float>> device_scores;
  std::vector<OnDevice<std::uint32_t>> out;
  std::vector<TopKRow> rows;
  for (std::size_t r = 0; r < scores.size(); ++r) {
    device_scores.emplace_back(scores[r]);
    out.emplace_back(1 + std::min(keep[r], sizes[r]));
    rows.push_back({device_scores[r].data(), sizes[r], keep[r], out[r].data()});
  }
  const OnDevice<TopKRow> device_rows(rows);
  top_k_cuda(device_rows.data(), static_cast<std::uint32_t>(rows.size()), 1, {});
  for (std::size_t r = 0; r < scores.size(); ++r) {
    std::vector<std::uint32_t> expected(1 + std::min(keep[r], sizes[r]));
    expected[0] = static_cast<std::uint32_t>(expected.size() - 1);
    top_k(scores[r].data(), sizes[r], keep[r], expected.data() + 1);
    EXPECT_EQ(out[r].values(), expected) << "row " << r;
  }
}

TEST_F(TopKCudaTest, AGroupsScoreIsItsLargest) {
  Random random(4);
  const std::uint32_t n = 500, group = 5, k = 37;
  auto scores = random.normals(n * group);
  for (std::uint32_t i = 0; i < n * group; i += 9) scores[i] = 2;  // ties
  for (std::uint32_t i = 0; i < 40; ++i) scores[random.below(n * group)] = i % 2 == 0 ? std::nanf("") : kInfinity;
  std::vector<float> largest(scores.begin(), scores.begin() + n);
  for (std::uint32_t i = 0; i < n * group; ++i) largest[i % n] = std::max(largest[i % n], scores[i]);
  std::vector<std::uint32_t> expected(1 + k, k);
  top_k(largest.data(), n, k, expected.data() + 1);
  const OnDevice<float> device(scores);
  const OnDevice<std::uint32_t> out(1 + k);
  const OnDevice<TopKRow> row(std::vector<TopKRow>{{device.data(), n, k, out.data()}});
  top_k_cuda(row.data(), 1, group, {});
  EXPECT_EQ(out.values(), expected);
  EXPECT_THROW(top_k_cuda(row.data(), 1, 0, {}), LogicError);
}

TEST_F(TopKCudaTest, TheFirstAreChosenWhateverTheirScore) {
  Random random(7);
  auto scores = random.normals(700);
  for (std::size_t i = 0; i < 10; ++i) scores[i] = i % 2 == 0 ? -kInfinity : std::nanf("");
  const OnDevice<float> device(scores);
  for (const std::uint32_t first : {0u, 3u, 10u, 40u}) {
    Words expected(41, 40);
    top_k(scores.data(), 700, 40, expected.data() + 1, first);
    for (std::uint32_t i = 0; i < first; ++i) EXPECT_EQ(expected[1 + i], i);
    const OnDevice<std::uint32_t> out(41);
    const OnDevice<TopKRow> row(std::vector<TopKRow>{{device.data(), 700, 40, out.data(), first}});
    top_k_cuda(row.data(), 1, 1, {});
    EXPECT_EQ(out.values(), expected) << first;
  }
}

}  // namespace
}  // namespace tandem
