// Choices by few components, with equals, infinities and NaN: on the CPU by hand, and the CUDA twins against the CPU.
#include <algorithm>
#include <cmath>

#include "engine/mechanisms/partial_key_index/kernels/skewed.h"
#include "tests/engine/kernels/cuda_test.h"

namespace tandem {
namespace {

using Words = std::vector<std::uint32_t>;

TEST(Skewed, CountsWhatIsNearTheBest) {
  const float scores[] = {5, 1, 4.5f, -kInfinity, 2, 2, std::nanf(""), 2};
  EXPECT_EQ(tokens_near_the_best(scores, 2, 4, 1), 3u);  // 2 and 3: the mean, rounded up
  EXPECT_EQ(tokens_near_the_best(scores, 2, 4, 0), 2u);
  EXPECT_EQ(tokens_near_the_best(scores, 1, 0, 4), 0u);
  const std::vector<float> nothing(4, -kInfinity);
  EXPECT_EQ(tokens_near_the_best(nothing.data(), 1, 4, 4), 4u);
  Words chosen(3);
  best_units(scores, 2, 4, 2, 9, chosen.data());
  EXPECT_EQ(chosen, (Words{2, 0, 1}));
  best_units(scores, 2, 4, 2, 1, chosen.data());
  EXPECT_EQ(chosen[1], 0u);
  Words of_each(5);
  best_units_of_each(scores, 2, 4, 1, 2, of_each.data());  // 0 and 2, of the other head 0 and 1
  EXPECT_EQ(Words(of_each.begin(), of_each.begin() + 4), (Words{3, 0, 1, 2}));
  best_units_of_each(scores, 2, 4, 1, 1, of_each.data());
  EXPECT_EQ(Words(of_each.begin(), of_each.begin() + 2), (Words{1, 0}));
}

TEST(Skewed, DirectionsAreOrthonormalAndFollowTheLargestShare) {
  Random random(1);
  const std::uint32_t dim = 12, columns = 5;
  // Keys mostly along (1, 1, 0 ...), queries mostly along (0, 0, 1, 0 ...).
  const std::uint32_t tokens = 208;
  std::vector<float> page(tokens * 2 * dim), query_rows(tokens * dim);
  for (std::uint32_t t = 0; t < tokens; ++t) {
    auto key = random.normals(dim, 0.1f), query = random.normals(dim, 0.1f);
    const float along = random.normal();
    key[0] += along;
    key[1] += along;
    query[2] += random.normal();
    std::copy(key.begin(), key.end(), &page[(t / 16 * 32 + t % 16) * dim]);
    std::copy(query.begin(), query.end(), &query_rows[t * dim]);
  }
  Words slots(tokens / 16);
  for (std::uint32_t p = 0; p < slots.size(); ++p) slots[p] = p;
  std::vector<double> keys(dim * dim), queries(dim * dim);
  skew_grams({slots.data(), tokens, 0, query_rows.data(), 2 * dim, tokens / 2, keys.data(), queries.data()}, 2,
             {page.data(), DType::f32, 1, dim});
  std::vector<float> skew(columns * dim);
  skew_directions(keys.data(), queries.data(), dim, columns, skew.data());
  const auto dot = [&](const float* a, const float* b) {
    double sum = 0;
    for (std::uint32_t d = 0; d < dim; ++d) sum += double{a[d]} * double{b[d]};
    return sum;
  };
  for (std::uint32_t a = 0; a < columns; ++a)
    for (std::uint32_t b = 0; b < columns; ++b) EXPECT_NEAR(dot(&skew[a * dim], &skew[b * dim]), a == b ? 1 : 0, 1e-6);
  std::vector<float> both(dim), third(dim);
  both[0] = both[1] = std::sqrt(0.5f);
  third[2] = 1;
  for (const auto& x : {both, third}) {
    const double first = dot(&skew[0], x.data()), second = dot(&skew[dim], x.data());
    EXPECT_GT(first * first + second * second, 0.98);
  }
}

class SkewedCudaTest : public CudaTest {};

TEST_F(SkewedCudaTest, ChoicesOfInfinitiesAndNanEqualTheCpus) {
  Random random(6);
  for (const std::uint32_t n : {0u, 1u, 60u}) {
    std::vector<float> scores = random.normals(4 * std::size_t{n});
    for (std::size_t i = 0; i < scores.size(); i += 3) scores[i] = i % 2 == 0 ? -kInfinity : std::nanf("");
    for (const double alpha : {0.0, 1.0, 1e300}) {
      const std::uint32_t keep = std::min(20u, tokens_near_the_best(scores.data(), 4, n, alpha));
      const OnDevice<float> device(scores);
      const OnDevice<std::uint32_t> chosen(Words(2 * 21)), near(4);
      const OnDevice<SkewedChoice> choice(
          std::vector<SkewedChoice>{{device.data(), n, 1, 20, alpha, chosen.data(), 20, near.data()}});
      choose_skewed_cuda(choice.data(), 1, n, 2, 2, Scope::kv_head, {});
      const Words got = chosen.values();
      for (std::uint32_t head = 0; head < 2; ++head) {
        Words expected(21);
        best_units(scores.data() + std::size_t{head} * 2 * n, 2, n, 1, keep, expected.data());
        for (std::uint32_t i = 0; i <= expected[0]; ++i)
          EXPECT_EQ(got[head * 21 + i], expected[i]) << n << " " << alpha;
      }
      const OnDevice<std::uint32_t> of_each(Words(2 * 41)), marks(2 * n);
      const OnDevice<SkewedChoice> apart(std::vector<SkewedChoice>{
          {device.data(), n, 1, 20, alpha, of_each.data(), 40, near.data(), nullptr, marks.data()}});
      choose_skewed_cuda(apart.data(), 1, n, 2, 2, Scope::query_head, {});
      const Words got_of_each = of_each.values();
      for (std::uint32_t head = 0; head < 2; ++head) {
        Words expected(41);
        best_units_of_each(scores.data() + std::size_t{head} * 2 * n, 2, n, 1, keep, expected.data());
        EXPECT_EQ(Words(got_of_each.begin() + head * 41, got_of_each.begin() + head * 41 + 1 + expected[0]),
                  Words(expected.begin(), expected.begin() + 1 + expected[0]))
            << n << " " << alpha;
      }
    }
  }
}

TEST_F(SkewedCudaTest, ChoicesOfAllHeadsEqualTheCpusWithInfinitiesNanAndEquals) {
  Random random(9);
  const std::uint32_t heads = 2, group = 2, most = 20;
  for (const std::uint32_t n : {0u, 1u, 60u, 400u}) {
    std::vector<float> scores = random.normals(std::size_t{heads} * group * n);
    for (float& score : scores) score = std::round(score);  // many equals
    for (std::size_t i = 0; i < scores.size(); i += 3) scores[i] = i % 2 == 0 ? -kInfinity : std::nanf("");
    if (n > 1) {
      for (std::uint32_t h = 0; h < heads * group; ++h) scores[h * n + 7] = -kInfinity;
      scores[7] = scores[n + 20] = kInfinity;  // with -infinity of the other head it is NaN; infinity alone
      for (std::uint32_t h = 0; h < heads * group; ++h) scores[h * n + 31] = std::nanf("");
    }
    for (const std::uint32_t unit : {1u, 4u}) {
      for (const double alpha : {0.0, 1.0, 1e300}) {
        const std::uint32_t tokens = tokens_near_the_best(scores.data(), heads * group, n, alpha);
        Words expected(heads * (1 + most));
        best_units_of_all(scores.data(), heads, group, n, unit, std::min(most, (tokens + unit - 1) / unit),
                          expected.data(), 1 + most);
        const OnDevice<float> device(scores), sums(n / unit);
        const OnDevice<std::uint32_t> chosen(Words(heads * (1 + most))), near(heads * group);
        const OnDevice<SkewedChoice> choice(std::vector<SkewedChoice>{
            {device.data(), n, unit, most, alpha, chosen.data(), most, near.data(), sums.data()}});
        choose_skewed_cuda(choice.data(), 1, n / unit, heads, group, Scope::layer, {});
        EXPECT_EQ(chosen.values(), expected) << n << " " << unit << " " << alpha;
      }
    }
  }
}

}  // namespace
}  // namespace tandem
