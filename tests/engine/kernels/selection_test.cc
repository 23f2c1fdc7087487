// Digests, block scores and top-k.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/common/error.h"
#include "engine/kernels/digest.h"
#include "engine/kernels/topk.h"
#include "tests/engine/kernels/kernel_test.h"

namespace tandem {
namespace {

class SelectionTest : public IsaAndTypeTest {
 protected:
  static StoredArray stored(const std::vector<float>& values) { return {values, type()}; }
  static StoredArray room(std::size_t n) { return {std::vector<float>(n), type()}; }
};
TANDEM_EACH_ISA_AND_TYPE(SelectionTest);

TEST_P(SelectionTest, DigestIsTheElementwiseMinimumAndMaximum) {
  Random random(1);
  for (const std::uint32_t dim : {1u, 8u, 64u, 80u, 96u, 128u, 131u}) {
    const std::uint32_t tokens = 1 + random.below(40);
    const StoredArray k = stored(random.normals(std::size_t{tokens} * dim));
    StoredArray low = room(dim), high = room(dim);
    build_digest(k.at(0), type(), tokens, dim, low.data(), high.data());
    for (std::uint32_t d = 0; d < dim; ++d) {
      std::vector<float> column;
      for (std::uint32_t t = 0; t < tokens; ++t) column.push_back(k.values()[t * dim + d]);
      EXPECT_EQ(load_element(low.at(0), type(), d), *std::min_element(column.begin(), column.end()));
      EXPECT_EQ(load_element(high.at(0), type(), d), *std::max_element(column.begin(), column.end()));
    }
  }
  float low, high;
  EXPECT_THROW(build_digest(&low, DType::f32, 0, 1, &low, &high), LogicError);
}

TEST_P(SelectionTest, ThePyramidIsTheDigestOfTheUnion) {
  Random random(2);
  const std::uint32_t dim = 80;
  const StoredArray k = stored(random.normals(128 * dim));
  StoredArray low = room(8 * dim), high = room(8 * dim);
  for (std::uint32_t b = 0; b < 8; ++b)
    build_digest(k.at(b * 16 * dim), type(), 16, dim, low.data(b * dim), high.data(b * dim));
  for (std::uint32_t blocks = 8; blocks > 1; blocks /= 2)
    for (std::uint32_t b = 0; b < blocks / 2;
         ++b)  // over the children: block b is written after 2b and 2b + 1 were read
      merge_digest(low.at(2 * b * dim), high.at(2 * b * dim), type(), 2, dim, low.data(b * dim), high.data(b * dim));
  StoredArray all_low = room(dim), all_high = room(dim);
  build_digest(k.at(0), type(), 128, dim, all_low.data(), all_high.data());
  EXPECT_EQ(std::memcmp(all_low.at(0), low.at(0), dim * size_of(type())), 0);
  EXPECT_EQ(std::memcmp(all_high.at(0), high.at(0), dim * size_of(type())), 0);
}

TEST_P(SelectionTest, MeansAreTheKeysMeanAndScoreByIt) {
  Random random(5);
  for (const std::uint32_t dim : {1u, 8u, 64u, 80u, 131u}) {
    const std::uint32_t tokens = 17 + random.below(40), group = 3;
    const StoredArray k = stored(random.normals(std::size_t{tokens} * dim));
    std::vector<float> sums(dim, 0.0f);
    add_keys(k.at(0), type(), 16, dim, sums.data());  // page by page
    add_keys(k.at(16 * dim), type(), tokens - 16, dim, sums.data());
    StoredArray mean = room(dim);
    mean_digest(sums.data(), tokens, type(), dim, mean.data());
    const double rounding = type() == DType::f32 ? 0 : type() == DType::f16 ? 1.0 / 2048 : 1.0 / 256;
    const auto q = random.normals(std::size_t{group} * dim);
    std::vector<float> scores(group);
    score_blocks(q.data(), mean.at(0), mean.at(0), 1, {group, dim, type()}, scores.data());
    std::vector<double> expected(group, 0.0);
    for (std::uint32_t d = 0; d < dim; ++d) {
      double column = 0;
      for (std::uint32_t t = 0; t < tokens; ++t) column += double{k.values()[t * dim + d]} / tokens;
      const double found = load_element(mean.at(0), type(), d);
      EXPECT_NEAR(found, column, rounding * std::abs(column) + 2e-6)
          << dim;  // the store's rounding, and that of f32 sums
      for (std::uint32_t h = 0; h < group; ++h) expected[h] += q[h * dim + d] * found;
    }
    for (std::uint32_t h = 0; h < group; ++h) EXPECT_NEAR(scores[h], expected[h], 1e-5 * dim);
  }
  float sum = 0, out;
  EXPECT_THROW(mean_digest(&sum, 0, DType::f32, 1, &out), LogicError);
}

TEST_P(SelectionTest, ScoresAgreeWithFloat64AndBoundEveryKey) {
  Random random(3);
  for (const std::uint32_t dim : {5u, 64u, 80u, 96u, 128u}) {
    for (std::uint32_t group = 1; group <= 9; ++group) {
      const std::uint32_t blocks = 1 + random.below(20);
      const StoredArray k = stored(random.normals(std::size_t{blocks} * 16 * dim));
      const auto q = random.normals(std::size_t{group} * dim);
      StoredArray low = room(blocks * dim), high = room(blocks * dim);
      std::vector<float> scores(group * blocks), expected(scores.size());
      for (std::uint32_t b = 0; b < blocks; ++b)
        build_digest(k.at(b * 16 * dim), type(), 16, dim, low.data(b * dim), high.data(b * dim));
      score_blocks(q.data(), low.at(0), high.at(0), blocks, {group, dim, type()}, scores.data());
      score_blocks_reference(q.data(), low.at(0), high.at(0), blocks, {group, dim, type()}, expected.data());
      expect_near(scores, expected, 1e-5);
      for (std::uint32_t h = 0; h < group; ++h)
        for (std::uint32_t t = 0; t < blocks * 16; ++t) {
          const double dot = std::inner_product(&q[h * dim], &q[h * dim] + dim, &k.values()[t * dim], 0.0);
          ASSERT_LE(dot, scores[h * blocks + t / 16] + 1e-3);
        }
    }
  }
}

TEST_P(SelectionTest, AScoreDependsOnItsQueryAndBlockAlone) {
  Random random(4);
  const std::uint32_t dim = 72, group = 6, blocks = 10;
  const StoredArray low = stored(random.normals(blocks * dim)), high = stored(random.normals(blocks * dim));
  const auto q = random.normals(group * dim);
  std::vector<float> scores(group * blocks);
  score_blocks(q.data(), low.at(0), high.at(0), blocks, {group, dim, type()}, scores.data());
  for (std::uint32_t h = 0; h < group; ++h)
    for (std::uint32_t b = 0; b < blocks; ++b) {
      float one;
      score_blocks(&q[h * dim], low.at(b * dim), high.at(b * dim), 1, {1, dim, type()}, &one);
      EXPECT_EQ(one, scores[h * blocks + b]);
    }
}

TEST(TopK, AgreesWithAStableSort) {
  Random random(5);
  for (int round = 0; round < 300; ++round) {
    const std::uint32_t n = 1 + random.below(round < 100 ? 8 : 500), k = random.below(n + 3);
    auto scores = random.normals(n);
    if (round % 2)
      for (float& score : scores) score = std::round(score);  // many ties
    if (round % 5 == 0) scores[random.below(n)] = kInfinity;
    if (round % 7 == 0)
      for (std::uint32_t i = 0; i < n / 2; ++i) scores[random.below(n)] = -kInfinity;
    std::vector<std::uint32_t> order(n);
    std::iota(order.begin(), order.end(), 0u);
    std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return scores[a] > scores[b]; });
    order.resize(std::min(n, k));
    std::sort(order.begin(), order.end());
    std::vector<std::uint32_t> chosen(order.size());
    top_k(scores.data(), n, k, chosen.data());
    EXPECT_EQ(chosen, order);
  }
}

TEST(TopK, LongListsAreExactWhateverASampleSaysOfThem) {
  Random random(9);
  for (const std::uint32_t n : {256u, 1004u, 6400u}) {
    const std::vector<float> drawn = random.normals(n);
    for (int kind = 0; kind < 6; ++kind) {
      std::vector<float> scores = drawn;
      for (std::uint32_t i = 0; i < n; ++i) {
        if (kind == 1) scores[i] = i % (n / 64) == 0 ? 5.0f : drawn[i];  // a sample of every n/64th sees only these
        if (kind == 2) scores[i] = i % (n / 64) == 0 ? -5.0f : drawn[i];
        if (kind == 3) scores[i] = 1;
        if (kind == 4) scores[i] = i % 3 == 0 ? kInfinity : i % 3 == 1 ? -kInfinity : drawn[i];
        if (kind == 5) scores[i] = i % 2 == 0 ? std::nanf("") : std::round(drawn[i]);
      }
      std::vector<std::uint32_t> order(n);
      std::iota(order.begin(), order.end(), 0u);
      const auto worth = [&](std::uint32_t i) { return std::isnan(scores[i]) ? -kInfinity : scores[i]; };
      std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return worth(a) > worth(b); });
      for (const std::uint32_t k : {1u, n / 50, n / 10, n / 2, n - 1}) {
        std::vector<std::uint32_t> best(order.begin(), order.begin() + k), chosen(k);
        std::sort(best.begin(), best.end());
        top_k(scores.data(), n, k, chosen.data());
        ASSERT_EQ(chosen, best) << n << " " << k << " " << kind;
      }
    }
  }
}

TEST(TopK, TiesGoToTheLowerIndex) {
  const std::vector<float> scores = {1, 3, 2, 3, 2, 2, 0};
  std::vector<std::uint32_t> chosen(3);
  top_k(scores.data(), 7, 3, chosen.data());
  EXPECT_EQ(chosen, (std::vector<std::uint32_t>{1, 2, 3}));
  top_k(nullptr, 0, 5, nullptr);
  const std::vector<float> zeros = {-0.0f, 0.0f};
  top_k(zeros.data(), 2, 1, chosen.data());
  EXPECT_EQ(chosen[0], 0u);
}

TEST(TopK, NotANumberIsTheWorstScore) {
  const float nan = std::nanf("");
  for (const std::uint32_t k : {1u, 2u, 3u, 4u}) {
    std::vector<std::uint32_t> out(k, 99);
    const float some[] = {nan, 1, nan, 2, -1};
    top_k(some, 5, k, out.data());
    for (const std::uint32_t i : out) EXPECT_LT(i, 5u);
    EXPECT_TRUE(k != 3 || out == (std::vector<std::uint32_t>{1, 3, 4}));
    const float none[] = {nan, nan, nan, nan, nan};
    top_k(none, 5, k, out.data());
    for (std::uint32_t i = 0; i < k; ++i) EXPECT_EQ(out[i], i);
  }
}

}  // namespace
}  // namespace tandem
