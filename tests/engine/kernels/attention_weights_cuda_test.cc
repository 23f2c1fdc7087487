// Averages of attention weights on the GPU or its emulation, against the CPU twins.
#include <limits>

#include "engine/kernels/attention_weights.h"
#include "tests/engine/kernels/cuda_test.h"

namespace tandem {
namespace {

class AttentionWeightsCudaTest : public CudaTest {};

TEST_F(AttentionWeightsCudaTest, BlendsLikeTheCpu) {
  Random random(1);
  const std::uint32_t sizes[] = {1, 300, 0, 256, 77}, queries[] = {1, 4, 2, 1, 64};
  for (const float keep : {0.9f, 1.0f}) {
    const float share = keep == 1 ? 0.25f : 0.1f;
    std::vector<OnDevice<float>> scores, lse, averages;
    std::vector<WeightBlend> blends;
    std::vector<std::vector<float>> expected;
    for (std::size_t b = 0; b < 5; ++b) {
      const std::size_t stride = sizes[b] + b;
      auto score = random.normals(queries[b] * stride, 3);
      std::vector<float> sums(queries[b]);
      expected.push_back(random.normals(sizes[b]));
      averages.emplace_back(expected.back());
      for (std::size_t query = 0; query < queries[b]; ++query) {
        float* const row = score.data() + query * stride;
        if (sizes[b] > 3) row[2] = -kInfinity;
        if (query == 3) std::fill_n(row, stride, -kInfinity);
        sums[query] = log_sum_exp(row, sizes[b]);
        if (query != 3) blend_weights(row, sums[query], sizes[b], keep, share, expected.back().data());
        if (query == 3)
          for (float& average : expected.back()) average *= keep;
      }
      scores.emplace_back(score);
      lse.emplace_back(sums);
      blends.push_back({scores[b].data(), lse[b].data(), averages[b].data(), stride, sizes[b], queries[b]});
    }
    const OnDevice<WeightBlend> device(blends);
    blend_weights_cuda(device.data(), 5, 300, keep, share, {});
    for (std::size_t b = 0; b < 5; ++b) expect_near(averages[b].values(), expected[b], 1e-6);
  }
}

TEST_F(AttentionWeightsCudaTest, AQueryOfMinusInfinityHasNoWeightsWhateverItsScores) {
  const std::vector<float> old = {1, 2, 3}, faded = {0.75f, 1.5f, 2.25f};
  const OnDevice<float> scores({0.5f, 90, -kInfinity}), lse(std::vector<float>{-kInfinity}), average(old);
  const OnDevice<WeightBlend> blend({{scores.data(), lse.data(), average.data(), 3, 3, 1}});
  blend_weights_cuda(blend.data(), 1, 3, 0.75f, 0.25f, {});
  EXPECT_EQ(average.values(), faded);
}

TEST_F(AttentionWeightsCudaTest, FreshTokensHaveNoAverageYet) {
  const float nan = std::nanf("");
  const OnDevice<float> scores({0, 0, 0, 0}), lse(std::vector<float>{0.0f}), average({4, 8, nan, kInfinity});
  const OnDevice<WeightBlend> blend({{scores.data(), lse.data(), average.data(), 4, 4, 1, 2}});
  blend_weights_cuda(blend.data(), 1, 4, 0.75f, 0.25f, {});
  EXPECT_EQ(average.values(), (std::vector<float>{3.25f, 6.25f, 0.25f, 0.25f}));
}

TEST_F(AttentionWeightsCudaTest, LogSumExpAgreesWithFloat64) {
  Random random(2);
  const std::uint32_t sizes[] = {0, 1, 33, 1000, 5};
  std::vector<OnDevice<float>> scores;
  std::vector<ScoreRow> rows;
  std::vector<float> expected;
  const OnDevice<float> lse(5);
  for (std::size_t r = 0; r < 5; ++r) {
    const auto row = r == 4 ? std::vector<float>(5, -kInfinity) : random.normals(sizes[r], r == 2 ? 60 : 2);
    double sum = 0, most = -std::numeric_limits<double>::infinity();
    for (const float score : row) most = std::max(most, double{score});
    for (const float score : row) sum += std::exp(double{score} - most);
    expected.push_back(static_cast<float>(r == 0 || r == 4 ? -kInfinity : most + std::log(sum)));
    scores.emplace_back(row);
    rows.push_back({scores[r].data(), sizes[r], lse.data() + r});
  }
  const OnDevice<ScoreRow> device(rows);
  log_sum_exp_cuda(device.data(), 5, {});
  const auto actual = lse.values();
  EXPECT_EQ(actual[0], -kInfinity);
  EXPECT_EQ(actual[4], -kInfinity);
  for (std::size_t r = 1; r < 4; ++r)
    EXPECT_NEAR(actual[r], expected[r], 1e-5 * std::max(1.0f, std::fabs(expected[r])));
}

}  // namespace
}  // namespace tandem
