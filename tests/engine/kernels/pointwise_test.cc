// Norms, rotary embedding, activations, embedding rows and the two best logits.
#include "engine/kernels/pointwise.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "engine/common/error.h"
#include "engine/kernels/rope.h"
#include "engine/kernels/sampling.h"
#include "tests/engine/kernels/kernel_test.h"

namespace tandem {
namespace {

// The oracles, in float64.

void rms_norm_reference(const float* x, const MatrixView& weight, float eps, float* y, std::uint32_t n,
                        std::uint32_t d) {
  for (std::size_t i = 0; i < n; ++i) {
    double squares = 0;
    for (std::size_t j = 0; j < d; ++j) squares += double{x[i * d + j]} * double{x[i * d + j]};
    const double scale = 1 / std::sqrt(squares / d + double{eps});
    for (std::size_t j = 0; j < d; ++j)
      y[i * d + j] =
          static_cast<float>(double{x[i * d + j]} * scale * double{load_element(weight.data, weight.type, j)});
  }
}

void rope_reference(float* x, const std::uint32_t* positions, const RopeTable& frequencies, std::uint32_t n,
                    std::uint32_t heads) {
  const std::size_t dim = frequencies.head_dim, pairs = dim / 2;
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t h = 0; h < heads; ++h) {
      float* head = x + (i * heads + h) * dim;
      for (std::size_t j = 0; j < pairs; ++j) {
        const double angle = frequencies.inverse_frequency[j] * positions[i];
        const double a = head[j], b = head[j + pairs];
        head[j] = static_cast<float>(frequencies.scale * (a * std::cos(angle) - b * std::sin(angle)));
        head[j + pairs] = static_cast<float>(frequencies.scale * (b * std::cos(angle) + a * std::sin(angle)));
      }
    }
  }
}

void swiglu_reference(const float* gate, const float* up, float* out, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i)
    out[i] = static_cast<float>(double{gate[i]} / (1 + std::exp(-double{gate[i]})) * double{up[i]});
}

class PointwiseTest : public IsaTest {};
TANDEM_EACH_ISA(PointwiseTest);

TEST_P(PointwiseTest, RmsNormAgreesWithFloat64) {
  Random random(1);
  for (int round = 0; round < 30; ++round) {
    const std::uint32_t d = round < 4 ? 64u + 16u * static_cast<std::uint32_t>(round) : 1 + random.below(300),
                        n = 1 + random.below(4);
    const Stored weight(random.normals(d),
                        round % 3 == 0   ? DType::f32
                        : round % 3 == 1 ? DType::f16
                                         : DType::bf16,
                        1, d);
    const auto x = random.normals(std::size_t{n} * d, round % 2 ? 1.0f : 1e-3f);
    std::vector<float> expected(x.size()), y(x.size());
    rms_norm_reference(x.data(), weight.view, 1e-6f, expected.data(), n, d);
    rms_norm(x.data(), weight.view, 1e-6f, y.data(), n, d);
    expect_near(y, expected, 2e-6);
    auto in_place = x;
    rms_norm(in_place.data(), weight.view, 1e-6f, in_place.data(), n, d);
    EXPECT_TRUE(same_bits(in_place, y));
  }
}

TEST_P(PointwiseTest, RmsNormOfKnownRow) {
  const Stored weight({1, 2}, DType::f32, 1, 2);
  const std::vector<float> x = {3, 4, 0, 0};
  std::vector<float> y(4);
  rms_norm(x.data(), weight.view, 1e-6f, y.data(), 2, 2);
  expect_near(y, {3 / std::sqrt(12.5f), 8 / std::sqrt(12.5f), 0, 0}, 1e-6);
}

TEST_P(PointwiseTest, RopeAgreesWithLibmUpToAMillionTokens) {
  Random random(3);
  for (const std::uint32_t dim : {2u, 10u, 64u, 80u, 96u, 128u}) {
    for (const double theta : {1e4, 5e5, 1e6}) {
      const RopeTable table(dim, theta);
      const std::vector<std::uint32_t> positions = {
          0, 1, 2, 1000, 131071, 999983, 1048575, 4000000000u, random.below(1u << 20)};
      const auto n = static_cast<std::uint32_t>(positions.size());
      const auto x = random.normals(std::size_t{n} * 3 * dim);
      auto expected = x, actual = x;
      rope_reference(expected.data(), positions.data(), table, n, 3);
      rope(actual.data(), positions.data(), table, n, 3);
      expect_near(actual, expected, 2e-6);
      EXPECT_TRUE(std::equal(x.begin(), x.begin() + 3 * dim, actual.begin())) << "position 0 turns nothing";
    }
  }
}

TEST_P(PointwiseTest, RopePairsTheTwoHalves) {
  const RopeTable table(4, 10000.0);
  std::vector<float> x = {1, 0, 0, 2};
  const std::uint32_t position = 3;
  rope(x.data(), &position, table, 1, 1);
  expect_near(x, {std::cos(3.0f), -2 * std::sin(0.03f), std::sin(3.0f), 2 * std::cos(0.03f)}, 1e-6);
}

TEST_P(PointwiseTest, RopeKeepsTheAngleBetweenTokens) {  // q.k depends on the distance alone
  Random random(4);
  const RopeTable table(64, 10000.0);
  const auto q = random.normals(64), k = random.normals(64);
  const auto dot = [&](std::uint32_t at_q, std::uint32_t at_k) {
    auto a = q, b = k;
    rope(a.data(), &at_q, table, 1, 1);
    rope(b.data(), &at_k, table, 1, 1);
    return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
  };
  EXPECT_NEAR(dot(100, 40), dot(900060, 900000), 2e-5);
}

TEST(Rope, RefusesAnOddDimension) {
  EXPECT_THROW(RopeTable(63, 1e4), LogicError);
}

TEST_P(PointwiseTest, SwigluAgreesWithFloat64) {
  Random random(5);
  for (const std::size_t n : {0u, 1u, 7u, 16u, 100u, 1001u}) {
    auto gate = random.normals(n, 5), up = random.normals(n);
    for (std::size_t i = 0; i + 10 < n; i += 50)
      for (const float extreme : {-200.0f, -88.0f, -87.0f, -1e-30f, 0.0f, 87.5f, 200.0f}) gate[i++] = extreme;
    std::vector<float> expected(n), out(n);
    swiglu_reference(gate.data(), up.data(), expected.data(), n);
    swiglu(gate.data(), up.data(), out.data(), n);
    expect_near(out, expected, 2e-6);
    swiglu(gate.data(), up.data(), gate.data(), n);
    EXPECT_TRUE(same_bits(gate, out));
  }
}

TEST_P(PointwiseTest, Add) {
  Random random(6);
  for (const std::size_t n : {0u, 1u, 33u, 100u}) {
    auto x = random.normals(n);
    const auto y = random.normals(n), before = x;
    add(x.data(), y.data(), n);
    for (std::size_t i = 0; i < n; ++i) EXPECT_EQ(x[i], before[i] + y[i]);
  }
}

TEST_P(PointwiseTest, EmbedCopiesRows) {
  Random random(7);
  for (const DType type : {DType::f32, DType::f16, DType::bf16}) {
    const Stored table(random.normals(10 * 37), type, 10, 37, 1);
    const std::vector<std::int32_t> tokens = {9, 0, 4, 4};
    std::vector<float> out(4 * 37);
    embed(table.view, tokens.data(), out.data(), 4);
    for (std::size_t i = 0; i < out.size(); ++i)
      EXPECT_EQ(out[i], load_element(table.view.data, type, static_cast<std::size_t>(tokens[i / 37]) * 37 + i % 37));
  }
  const Stored table({1, 2}, DType::f32, 2, 1);
  float out;
  for (const std::int32_t token : {-1, 2}) EXPECT_THROW(embed(table.view, &token, &out, 1), LogicError);
}

TEST_P(PointwiseTest, TopTwoAgreesWithASort) {
  Random random(8);
  for (int round = 0; round < 60; ++round) {
    const std::uint32_t vocab = round < 10 ? 1 + static_cast<std::uint32_t>(round) : 1 + random.below(3000);
    auto logits = random.normals(vocab);
    if (round % 2)  // many ties
      for (float& logit : logits) logit = std::round(logit);
    for (std::uint32_t i = 0; i < vocab / 10; ++i)
      logits[random.below(vocab)] = round % 3 == 0 ? std::numeric_limits<float>::quiet_NaN() : -kInfinity;
    if (round == 20) std::fill(logits.begin(), logits.end(), -kInfinity);
    if (round == 21) std::sort(logits.begin(), logits.end());
    std::vector<std::int32_t> order(vocab);
    std::iota(order.begin(), order.end(), 0);
    const auto key = [&](std::int32_t i) { return std::isnan(logits[i]) ? -kInfinity : logits[i]; };
    std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return key(a) > key(b); });
    const TopTwo top = top_two(logits.data(), vocab);
    EXPECT_EQ(top.best, order[0]);
    EXPECT_EQ(top.best_logit, key(order[0]));
    EXPECT_EQ(top.second, vocab > 1 ? order[1] : -1);
    EXPECT_EQ(top.second_logit, vocab > 1 ? key(order[1]) : -kInfinity);
  }
}

}  // namespace
}  // namespace tandem
