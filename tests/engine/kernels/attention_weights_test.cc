#include "engine/kernels/attention_weights.h"

#include "engine/common/error.h"
#include "engine/kernels/attention.h"
#include "tests/engine/kernels/kernel_test.h"

namespace tandem {
namespace {

class AttentionWeightsTest : public IsaTest {};
TANDEM_EACH_ISA(AttentionWeightsTest);

TEST_P(AttentionWeightsTest, ScoresAreTheSameAloneAndFromAttention) {
  Random random(11);
  for (const std::uint32_t dim : {8u, 24u, 64u, 80u, 128u, 12u}) {
    for (const std::uint32_t group : {1u, 3u, 4u, 8u}) {
      const std::uint32_t tokens = 1 + random.below(120);
      const auto k = random.normals(std::size_t{tokens} * dim), v = random.normals(std::size_t{tokens} * dim);
      const auto q = random.normals(std::size_t{group} * dim);
      std::vector<KvSpan> spans;
      for (std::uint32_t first = 0; first < tokens;) {
        const std::uint32_t count = std::min(random.below(20), tokens - first);
        spans.push_back({k.data() + std::size_t{first} * dim, v.data() + std::size_t{first} * dim, count, ~0u});
        first += count;
      }
      std::vector<float> o(std::size_t{group} * dim), lse(group), plain_o(o.size()), plain_lse(group);
      std::vector<float> emitted(std::size_t{group} * tokens), alone(emitted.size()), expected;
      partial_attention(q.data(), spans, {group, dim}, o.data(), lse.data(), emitted.data());
      partial_attention(q.data(), spans, {group, dim}, plain_o.data(), plain_lse.data());
      token_scores(q.data(), spans, {group, dim}, alone.data());
      EXPECT_TRUE(same_bits(o, plain_o) && same_bits(lse, plain_lse)) << "asking for scores changes nothing else";
      EXPECT_TRUE(same_bits(emitted, alone)) << "dim " << dim << ", group " << group;
      for (std::uint32_t h = 0; h < group; ++h) {
        for (std::uint32_t t = 0; t < tokens; ++t) {
          double dot = 0;
          for (std::uint32_t d = 0; d < dim; ++d) dot += double{q[h * dim + d]} * double{k[std::size_t{t} * dim + d]};
          expected.push_back(static_cast<float>(dot / std::sqrt(double(dim))));
        }
      }
      expect_near(alone, expected, 1e-5);
    }
  }
}

TEST_P(AttentionWeightsTest, ScoresNeedSpansThatAllHeadsAttend) {
  const std::vector<float> kv(64), q(128);
  std::vector<float> o(128), lse(2), scores(2);
  const KvSpan span{kv.data(), kv.data(), 1, 1};
  EXPECT_THROW(partial_attention(q.data(), {&span, 1}, {2, 64}, o.data(), lse.data(), scores.data()), LogicError);
}

TEST_P(AttentionWeightsTest, LogSumExpAgreesWithFloat64) {
  Random random(12);
  for (const std::size_t n : {1u, 7u, 16u, 33u, 1000u}) {
    for (const float scale : {0.1f, 5.0f, 60.0f}) {
      const auto scores = random.normals(n, scale);
      double sum = 0;
      const double top = *std::max_element(scores.begin(), scores.end());
      for (const float s : scores) sum += std::exp(double{s} - top);
      EXPECT_NEAR(log_sum_exp(scores.data(), n), top + std::log(sum), 1e-5 * std::max(1.0, std::fabs(top)));
    }
  }
  EXPECT_EQ(log_sum_exp(nullptr, 0), -kInfinity);
  const std::vector<float> nothing(5, -kInfinity);
  EXPECT_EQ(log_sum_exp(nothing.data(), 5), -kInfinity);
}

TEST_P(AttentionWeightsTest, BlendingIsAMovingAverageWhateverTheCut) {
  Random random(13);
  for (const std::size_t n : {1u, 15u, 16u, 100u}) {
    const auto scores = random.normals(n, 3), old = random.normals(n);
    const float lse = log_sum_exp(scores.data(), n);
    std::vector<float> whole = old, cut = old, expected;
    blend_weights(scores.data(), lse, n, 0.9f, 0.1f, whole.data());
    const std::size_t half = n / 3;
    blend_weights(scores.data(), lse, half, 0.9f, 0.1f, cut.data());
    blend_weights(scores.data() + half, lse, n - half, 0.9f, 0.1f, cut.data() + half);
    EXPECT_TRUE(same_bits(whole, cut));
    for (std::size_t t = 0; t < n; ++t)
      expected.push_back(static_cast<float>(0.9 * double{old[t]} + 0.1 * std::exp(double{scores[t]} - double{lse})));
    expect_near(whole, expected, 1e-6);
  }
}

TEST_P(AttentionWeightsTest, AQueryOfMinusInfinityHasNoWeightsWhateverItsScores) {
  for (const std::size_t n : {3u, 40u}) {  // less and more than a vector
    std::vector<float> scores(n, 0.5f), average(n, 2.0f);
    scores[1] = 90;
    scores[2] = -kInfinity;
    blend_weights(scores.data(), -kInfinity, n, 0.75f, 0.25f, average.data());
    EXPECT_EQ(average, std::vector<float>(n, 1.5f));
  }
}

TEST_P(AttentionWeightsTest, SalientMasksNameTheHeads) {
  const std::vector<float> averages = {0.1f, 0.3f, 0.2f,  9.0f,  // head 0, stride 4, the last is beyond n
                                       0.2f, 0.0f, 0.21f, 9.0f,  // head 1
                                       0.0f, 0.0f, 0.5f,  9.0f};
  std::vector<std::uint32_t> masks(4, 77);
  EXPECT_EQ(salient_masks(averages.data(), 4, 3, 3, 0.2f, masks.data()), 2u);
  EXPECT_EQ(masks, (std::vector<std::uint32_t>{0, 1, 6, 77}));  // above, not at the threshold
  EXPECT_EQ(salient_masks(averages.data(), 4, 3, 3, -1.0f, masks.data()), 3u);
  EXPECT_EQ(masks, (std::vector<std::uint32_t>{7, 7, 7, 77}));
}

}  // namespace
}  // namespace tandem
