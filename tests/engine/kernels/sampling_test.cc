// Draws of the next token: the generator, the weights, the filters against a model in float64, the distribution, and
// the GPU's draws, which are the CPU's.
#include "engine/kernels/sampling.h"

#include <algorithm>
#include <gmock/gmock.h>
#include <numeric>
#include <set>

#include "engine/common/error.h"
#include "engine/kernels/sampling_math.h"
#include "tests/engine/kernels/cuda_test.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(Sampling, TheGeneratorIsPhilox) {
  EXPECT_EQ(sampling::random_bits(0, 0), 0xe169c58d6627e8d5u);  // the authors' known answer
  EXPECT_NE(sampling::random_bits(0, 1), sampling::random_bits(1, 0));
  EXPECT_NE(sampling::random_bits(0, std::uint64_t{1} << 32), sampling::random_bits(0, 1));
}

TEST(Sampling, ScaledIsTheHighHalfOfTheProduct) {
  for (std::uint64_t i = 0; i < 1000; ++i) {
    const std::uint64_t a = sampling::random_bits(2, i), b = sampling::random_bits(3, i) >> 5;
    const long double exact = static_cast<long double>(a) * static_cast<long double>(b) / std::exp2(64.0L);
    const auto scaled = static_cast<long double>(sampling::scaled(a, b));
    EXPECT_LT(scaled, exact + 0.0625L);
    EXPECT_GT(scaled, exact - 1.0625L);
    EXPECT_EQ(sampling::scaled(~std::uint64_t{0}, b + 1), b);
    EXPECT_EQ(sampling::scaled(std::uint64_t{1} << 63, b), b / 2);
    EXPECT_EQ(sampling::scaled(a, std::uint64_t{1} << 40), a >> 24);
  }
}

TEST(Sampling, WeightsAreExponentials) {
  for (const float temperature : {0.3f, 1.0f, 1.7f}) {
    for (float below = 0; below < 30 * temperature; below += 0.0137f) {
      const double exact = std::exp(-double{below} / double{temperature}) * std::exp2(40);
      const auto weight = static_cast<double>(sampling::weight(3 - below, 3, sampling::kLog2E / double{temperature}));
      const double at = double{3 - below} - 3;  // the difference as it is
      EXPECT_NEAR(weight, std::exp(at / double{temperature}) * std::exp2(40), 1 + 1e-10 * exact);
    }
  }
  EXPECT_EQ(sampling::weight(-kInfinity, 0, 1), 0u);
  EXPECT_EQ(sampling::weight(std::nanf(""), 0, 1), 0u);
  EXPECT_EQ(sampling::weight(-1e30f, 0, 1e300), 0u);
}

/// Tokens that may be drawn, with their probabilities, by the definition.
std::vector<double> model(const std::vector<float>& logits, const Sampling& how) {
  const std::size_t n = logits.size();
  std::vector<std::size_t> order(n);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return logits[a] > logits[b]; });
  const double best = double{logits[order[0]]};
  std::vector<double> weight(n);
  for (std::size_t i = 0; i < n; ++i) weight[i] = std::exp((double{logits[i]} - best) / double{how.temperature});
  if (how.top_k > 0)
    for (std::size_t i = how.top_k; i < n; ++i) weight[order[i]] = 0;
  const double all = std::accumulate(weight.begin(), weight.end(), 0.0);
  double reached = 0;
  for (const std::size_t i : order) {
    if (reached >= double{how.top_p} * all && how.top_p < 1) weight[i] = 0;
    reached += weight[i];
  }
  for (double& w : weight) w = w >= double{how.min_p} ? w : 0;
  const double kept = std::accumulate(weight.begin(), weight.end(), 0.0);
  for (double& w : weight) w /= kept;
  return weight;
}

TEST(Sampling, DrawsFollowTheModel) {
  Random random(2);
  std::vector<float> logits = random.normals(12);
  logits[7] = logits[3];  // equals
  for (const Sampling how : {Sampling{1, 0, 1, 0, 5}, Sampling{1.7f, 0, 1, 0, 6}, Sampling{0.6f, 4, 1, 0, 7},
                             Sampling{1, 0, 0.7f, 0, 8}, Sampling{1, 0, 1, 0.3f, 9}, Sampling{2, 9, 0.8f, 0.2f, 10}}) {
    const std::vector<double> expected = model(logits, how);
    constexpr int kDraws = 20000;
    std::vector<int> count(logits.size());
    for (int i = 0; i < kDraws; ++i) {
      const auto token = sample_token(logits.data(), 12, how, static_cast<std::uint64_t>(i));
      ++count[static_cast<std::size_t>(token)];
    }
    double chi_square = 0;
    int kept = 0;
    for (std::size_t i = 0; i < count.size(); ++i) {
      const double mean = kDraws * expected[i];
      if (mean == 0) {
        EXPECT_EQ(count[i], 0) << "token " << i << ", seed " << how.seed;
        continue;
      }
      ++kept;
      chi_square += (count[i] - mean) * (count[i] - mean) / mean;
    }
    // Beyond the 0.9999 quantile of every number of degrees of freedom here: 37.4 of 11.
    EXPECT_LT(chi_square, 20 + 2 * kept) << "seed " << how.seed;
  }
}

TEST(Sampling, TemperatureZeroIsGreedyAndSoIsWhatCannotBeDrawn) {
  Random random(3);
  std::vector<float> logits = random.normals(50);
  logits[31] = logits[17] = 9;
  EXPECT_EQ(sample_token(logits.data(), 50, {}, 4), 17);
  EXPECT_EQ(sample_token(logits.data(), 50, {1, 1, 1, 0, 1}, 4), 17);      // the first of equals
  EXPECT_EQ(sample_token(logits.data(), 50, {1, 0, 1e-6f, 0, 1}, 4), 17);  // too
  const Sampling cold{1e-30f, 0, 1, 0, 1};
  for (std::uint64_t i = 0; i < 20; ++i) {
    const auto token = sample_token(logits.data(), 50, cold, i);
    EXPECT_TRUE(token == 17 || token == 31);
  }
  logits[40] = logits[41] = kInfinity;
  EXPECT_EQ(sample_token(logits.data(), 50, {1, 0, 1, 0, 1}, 4), 40);
  logits.assign(50, -kInfinity);
  EXPECT_EQ(sample_token(logits.data(), 50, {1, 0, 1, 0, 1}, 4), 0);
  logits[20] = 1;
  logits[21] = std::nanf("");
  for (std::uint64_t i = 0; i < 20; ++i) EXPECT_EQ(sample_token(logits.data(), 50, {5, 30, 1, 0, 1}, i), 20);
}

TEST(Sampling, SaysWhatIsOutOfRange) {
  const auto refused = [](Sampling how, const char* what) {
    EXPECT_THAT([&] { check_sampling(how); }, ThrowsMessage<InputError>(HasSubstr(what)));
  };
  refused({-1, 0, 1, 0, 0}, "--temperature is -1");
  refused({kInfinity, 0, 1, 0, 0}, "--temperature is inf");
  refused({1, 0, 0, 0, 0}, "--top-p is 0");
  refused({1, 0, 1.5f, 0, 0}, "--top-p is 1.5");
  refused({1, 0, std::nanf(""), 0, 0}, "--top-p is nan");
  refused({1, 0, 1, -0.5f, 0}, "--min-p is -0.5");
  check_sampling({});
}

class SamplingCudaTest : public CudaTest {};

TEST_F(SamplingCudaTest, DrawsWhatTheCpuDraws) {
  Random random(4);
  for (const std::uint32_t vocab : {1u, 7u, 300u, 5000u}) {
    std::vector<OnDevice<float>> device;
    std::vector<std::vector<float>> logits;
    std::vector<SampleRow> rows;
    const OnDevice<std::int32_t> tokens(24);
    for (std::uint32_t r = 0; r < 24; ++r) {
      logits.push_back(random.normals(vocab, r % 3 == 0 ? 6 : 1));
      if (r % 2 == 1)
        for (float& logit : logits.back()) logit = std::round(logit * 2) / 2;  // ties, zeros of both signs
      if (r % 5 == 4)
        for (std::uint32_t i = 0; i < vocab / 2; ++i)
          logits.back()[random.below(vocab)] = i % 2 == 0 ? -kInfinity : std::nanf("");
      if (r == 23) logits.back()[random.below(vocab)] = kInfinity;
      device.emplace_back(logits.back());
      SampleRow row;
      row.logits = device.back().data();
      row.how = {r % 7 == 0 ? 0.0f : 0.5f + static_cast<float>(r % 4), r % 3 == 1 ? 1 + random.below(vocab) : 0,
                 r % 4 == 2 ? 0.05f + 0.9f * static_cast<float>(r) / 24 : 1.0f, r % 6 == 5 ? 0.1f : 0.0f,
                 random.below(1000)};
      row.position = r;
      row.token = tokens.data() + r;
      rows.push_back(row);
    }
    const OnDevice<SampleRow> device_rows(rows);
    sample_tokens_cuda(device_rows.data(), 24, vocab, {});
    const auto drawn = tokens.values();
    for (std::uint32_t r = 0; r < 24; ++r)
      EXPECT_EQ(drawn[r], sample_token(logits[r].data(), vocab, rows[r].how, r)) << "row " << r << " of " << vocab;
  }
}

}  // namespace
}  // namespace tandem
