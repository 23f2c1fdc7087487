// Scores of a partial index of keys, with every instruction set; the index itself is tested by the cases of
// eval/kernels.
#include "engine/mechanisms/partial_key_index/kernels/skewed.h"

#include <cmath>
#include <limits>

#include "tests/engine/kernels/kernel_test.h"

namespace tandem {
namespace {

class SkewedTest : public IsaAndTypeTest {};
TANDEM_EACH_ISA_AND_TYPE(SkewedTest);

TEST_P(SkewedTest, ScoresAgreeWithFloat64) {
  Random random(7);
  for (const std::uint32_t columns : {1u, 19u, 39u, 64u}) {
    for (const std::uint32_t group : {1u, 3u, 4u, 7u}) {
      const std::uint32_t dim = 2 * columns + 1, n = 1 + random.below(70);
      const StoredArray keys = {random.normals(std::size_t{n} * columns), type()};
      const auto skew = random.normals(std::size_t{columns} * dim), q = random.normals(std::size_t{group} * dim);
      std::vector<float> scores(std::size_t{group} * n, -1e9f);
      skewed_scores({q.data(), skew.data(), keys.at(0), n, scores.data()}, {group, dim, columns, type()}, 0, n);
      for (std::uint32_t h = 0; h < group; ++h) {
        for (std::uint32_t t = 0; t < n; ++t) {
          double wanted = 0, size = 0;
          for (std::uint32_t c = 0; c < columns; ++c) {
            double turned = 0;
            for (std::uint32_t d = 0; d < dim; ++d) turned += double{skew[c * dim + d]} * double{q[h * dim + d]};
            wanted += turned * double{keys.values()[t * columns + c]};
            size += std::abs(turned * double{keys.values()[t * columns + c]});
          }
          const double root = std::sqrt(double(dim));
          EXPECT_NEAR(scores[h * n + t], wanted / root, 1e-5 * (size / root + 1)) << columns << " " << group;
        }
      }
    }
  }
}

TEST_P(SkewedTest, AScoreIsTheSameWhateverIsBesideIt) {
  Random random(8);
  constexpr std::uint32_t kColumns = 39, kDim = 128, kTokens = 37, kGroup = 7;
  const StoredArray keys = {random.normals(kTokens * kColumns), type()};
  const auto skew = random.normals(kColumns * kDim), q = random.normals(kGroup * kDim);
  std::vector<float> all(kGroup * kTokens), one(1);
  skewed_scores({q.data(), skew.data(), keys.at(0), kTokens, all.data()}, {kGroup, kDim, kColumns, type()}, 0, kTokens);
  for (const std::uint32_t h : {0u, 5u})
    for (const std::uint32_t t : {0u, 16u, 36u}) {
      skewed_scores({&q[h * kDim], skew.data(), keys.at(t * kColumns), 1, one.data()}, {1, kDim, kColumns, type()}, 0,
                    1);
      EXPECT_EQ(one[0], all[h * kTokens + t]);
    }
  std::vector<float> parts(all.size(), -1e9f);
  for (const std::uint32_t first : {0u, 11u, 30u}) {
    const std::uint32_t end = first == 0 ? 11 : first == 11 ? 30 : kTokens;
    skewed_scores({q.data(), skew.data(), keys.at(0), kTokens, parts.data()}, {kGroup, kDim, kColumns, type()}, first,
                  end - first);
  }
  EXPECT_EQ(parts, all);
}

TEST(NearTheBest, CountsAsDoublesCompare) {
  constexpr float kNothing = -std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> scores = {0.1f, 3.0f, kNan, 2.0f, std::nextafter(2.0f, 0.0f), kNothing};
  const auto n = static_cast<std::uint32_t>(scores.size());
  EXPECT_EQ(near_the_best(scores.data(), n, 1), 2u);
  EXPECT_EQ(near_the_best(scores.data(), n, 1 + 1e-12), 2u) << "no float lies between";
  EXPECT_EQ(near_the_best(scores.data(), n, 1 + 1e-6), 3u);
  EXPECT_EQ(near_the_best(scores.data(), n, 1e300), 4u);
  EXPECT_EQ(near_the_best(scores.data(), 0, 1), 0u);
  const std::vector<float> none = {kNan, kNothing};
  EXPECT_EQ(near_the_best(none.data(), 2, 1), 1u);
}

}  // namespace
}  // namespace tandem
