// Labels against the definition, evaluated set by set; and cases whose answer is known.
#include "methods/fluxion/labels.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/methods/fluxion/naive.h"

namespace tandem::testing {
namespace {

TEST(FluxionSegments, AreWhatHybridMethodsKeepOnTheDevice) {
  const Segments s = fluxion_segments(1000, 1007);
  EXPECT_EQ(s.sinks, 64u);
  EXPECT_EQ(s.window, 736u);  // 744 rounded down: the window rounds up to a page
  EXPECT_EQ(s.host(), 672u);
  EXPECT_EQ(s.device(), 335u);
  EXPECT_EQ(fluxion_segments(336, 336).host(), 16u);
  EXPECT_EQ(fluxion_segments(335, 335).host(), 0u);
  EXPECT_EQ(fluxion_segments(10, 12).host(), 0u);
  EXPECT_EQ(fluxion_segments(10, 12).device(), 12u);
}

struct Case {
  std::uint32_t seed, kv_heads, group, dim;
  Segments segments;
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << "seed " << c.seed << ", host tokens " << c.segments.host();
}
class Labels : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Random, Labels,
                         ::testing::Values(Case{1, 1, 2, 8, {16, 160, 180, 183}}, Case{2, 2, 2, 8, {16, 128, 140, 140}},
                                           Case{3, 1, 3, 16, {16, 96, 110, 111}}, Case{4, 1, 1, 5, {0, 48, 60, 64}},
                                           Case{5, 2, 1, 8, {32, 208, 215, 220}}));

TEST_P(Labels, EqualTheDefinition) {
  const Case& c = GetParam();
  const RandomLayer layer(c.seed, c.kv_heads, c.group, c.dim, c.segments);
  const LayerQuery query = layer.query();
  const BudgetLimits limits{0.07, 0.9};
  const auto heads = attend_heads(query);
  const auto labels = label_heads(query, heads, layer.digests(), limits);
  const NaiveLabels naive(layer, c.segments, limits);
  int partial = 0;
  for (std::uint32_t h = 0; h < layer.q_heads; ++h) {
    for (std::size_t p = 0; p < kBudgetPolicies; ++p) {
      const auto policy = static_cast<BudgetPolicy>(p);
      EXPECT_EQ(labels[h][p].streaming, naive.good(h, policy, {}));
      for (std::size_t i = 0; i < kLabelBlocks.size(); ++i)
        EXPECT_FLOAT_EQ(labels[h][p].budgets[i], static_cast<float>(naive.budget(h, policy, kLabelBlocks[i])))
            << "head " << h << ", " << kBudgetPolicyNames[p] << ", block " << kLabelBlocks[i];
      partial += labels[h][p].budgets[0] > 0 && labels[h][p].budgets[0] < 1 ? 1 : 0;
    }
  }
  EXPECT_GT(partial, 0);
}

TEST(LabelsByHand, LooseLimitsStreamAndTightOnesTakeEverything) {
  const RandomLayer layer(6, 1, 2, 8, {16, 96, 110, 111});
  const auto heads = attend_heads(layer.query());
  for (const PolicyLabels& head : label_heads(layer.query(), heads, layer.digests(), {10, 0})) {
    for (const HeadLabels& labels : head) {
      EXPECT_TRUE(labels.streaming);
      EXPECT_THAT(labels.budgets, ::testing::Each(0));
    }
  }
  for (const PolicyLabels& head : label_heads(layer.query(), heads, layer.digests(), {0, 1.1})) {
    for (const HeadLabels& labels : head) {
      EXPECT_FALSE(labels.streaming);
      EXPECT_THAT(labels.budgets, ::testing::Each(1));
    }
  }
}

// Three tokens of the host matter, by falling score with values 5, -3 and 13: one of them alone is nearer to the full
// output than the first two together.
TEST(LabelsByHand, ABudgetIsGoodOnlyWhereEveryLargerOneIs) {
  std::vector<float> keys(36, 0), values(36, 0);
  const std::array<float, 3> score = {8, 7.99f, 7.98f}, value = {5, -3, 13};
  std::copy(score.begin(), score.end(), keys.begin() + 20);
  std::copy(value.begin(), value.end(), values.begin() + 20);
  const float q = 1;
  const float* k = keys.data();
  const float* v = values.data();
  const LayerQuery layer{1, 1, 1, &q, {&k, 1}, {&v, 1}, {16, 32, 36, 36}};
  const std::vector<HostDigests> digests = {HostDigests(k + 16, 16, 1)};
  const auto heads = attend_heads(layer);
  const double full = heads[0].full.o[0];
  const auto error = [&](std::uint32_t n) {  // 20 tokens on the device have score 0 and value 0
    double sum = 20, o = 0;
    for (std::uint32_t i = 0; i < n; ++i) {
      sum += std::exp(double(score[i]));
      o += std::exp(double(score[i])) * value[i];
    }
    return std::abs(o / sum - full);
  };
  ASSERT_LT(error(1), error(2));
  const double between = (error(1) + error(2)) / 2 / full;
  EXPECT_FLOAT_EQ(label_heads(layer, heads, digests, {between, 0.95})[0][0].budgets[0], 3.0f / 16);
}

TEST(LabelsByHand, SlopeIsThatOfTheLeastSquaresLine) {
  HeadLabels labels;
  for (std::size_t i = 0; i < kLabelBlocks.size(); ++i)
    labels.budgets[i] = 0.1f + 0.05f * std::log2(float(kLabelBlocks[i]));
  EXPECT_NEAR(labels.properties().slope, 0.05, 1e-6);
  EXPECT_FLOAT_EQ(labels.properties().budget, 0.1f);
  // x = 0, 4, 5, 6, 7 with mean 4.4 and sum of squares 29.2; y has a spike at x = 0, which the intercept takes.
  labels.budgets = {0.9f, 0.2f, 0.2f, 0.2f, 0.2f};
  EXPECT_NEAR(labels.properties().slope, -4.4 * 0.7 / 29.2, 1e-6);
  EXPECT_FLOAT_EQ(labels.properties().budget, 0.9f);
}

TEST_P(Labels, OfAttentionThatWasPartlyDoneElsewhereAreTheSame) {
  const Case& c = GetParam();
  const RandomLayer layer(c.seed, c.kv_heads, c.group, c.dim, c.segments);
  const LayerQuery query = layer.query();
  const auto whole = attend_heads(query);
  std::vector<float> o, lse;
  for (const HeadAttention& head : whole) {
    o.insert(o.end(), head.device.o.begin(), head.device.o.end());
    lse.push_back(static_cast<float>(head.device.lse));
  }
  std::vector<const float*> keys, values;
  for (std::uint32_t g = 0; g < c.kv_heads; ++g) {
    keys.push_back(query.keys[g] + std::size_t{c.segments.sinks} * c.dim);
    values.push_back(query.values[g] + std::size_t{c.segments.sinks} * c.dim);
  }
  const auto heads = attend_host({.q_heads = query.q_heads,
                                  .kv_heads = query.kv_heads,
                                  .dim = c.dim,
                                  .tokens = c.segments.host(),
                                  .q = query.q,
                                  .device_o = o.data(),
                                  .device_lse = lse.data(),
                                  .keys = keys,
                                  .values = values});
  const auto digests = layer.digests();
  const BudgetLimits limits[] = {{0.07, 0.9}, {0.3, 0.9}};
  const auto labels = label_heads(query, heads, digests, limits);
  const auto tight = label_heads(query, whole, digests, limits[0]),
             loose = label_heads(query, whole, digests, limits[1]);
  for (std::uint32_t h = 0; h < query.q_heads; ++h) {
    EXPECT_NEAR(heads[h].full.norm(), whole[h].full.norm(), 1e-5);
    EXPECT_NEAR(heads[h].full.lse, whole[h].full.lse, 1e-5);
    for (std::size_t p = 0; p < kBudgetPolicies; ++p) {
      EXPECT_EQ(labels[0][h][p].budgets, tight[h][p].budgets);
      EXPECT_EQ(labels[1][h][p].budgets, loose[h][p].budgets);
    }
  }
}

TEST_P(Labels, ErrorsOfASelectionAreThoseOfAttentionOverIt) {
  const Case& c = GetParam();
  const RandomLayer layer(c.seed, c.kv_heads, c.group, c.dim, c.segments);
  const LayerQuery query = layer.query();
  const auto heads = attend_heads(query);
  const auto digests = layer.digests();
  for (std::uint32_t h = 0; h < query.q_heads; ++h) {
    for (const std::uint32_t block : {16u, 32u}) {
      // By the definition: the best blocks by bound, ties to the lower index.
      std::vector<std::pair<float, std::uint32_t>> order;
      const auto scores = digests[h / c.group].scores(query.q + std::size_t{h} * c.dim, block);
      for (std::uint32_t b = 0; b < scores.size(); ++b) order.emplace_back(-scores[b], b);
      std::sort(order.begin(), order.end());
      std::vector<std::uint32_t> tokens = device_tokens(c.segments);
      for (std::uint32_t n = 0; n <= order.size(); ++n) {
        const double error = selection_error(heads[h], query.q + std::size_t{h} * c.dim,
                                             query.values[h / c.group] + std::size_t{c.segments.sinks} * c.dim,
                                             digests[h / c.group], block, n);
        const Vec all = layer.attend(h, range(0, c.segments.tokens)).first;
        EXPECT_NEAR(error, norm(minus(layer.attend(h, tokens).first, all)), 1e-5) << block << " x " << n;
        if (n == order.size()) break;
        const std::uint32_t begin = c.segments.sinks + order[n].second * block;
        tokens = join(tokens, range(begin, std::min(begin + block, c.segments.window)));
      }
    }
  }
}

TEST(LabelsByHand, TheCoveringLineIsNowhereTooLow) {
  HeadLabels labels;
  labels.budgets = {0.0f, 0.2f, 0.3f, 0.35f, 0.36f};  // concave: its upper hull has every point
  const HeadProperties line = labels.properties(BudgetLine::cover);
  // Through 32 and 64 tokens: 0.25, 0.3, 0.35, 0.4, in all 0.09 too much; through 16 and 32 it would be 0.20.
  EXPECT_NEAR(line.slope, 0.05, 1e-6);
  EXPECT_NEAR(line.budget, 0.05, 1e-6);
  labels.budgets = {0.5f, 0.2f, 0.1f, 0.1f, 0.5f};  // convex: through its ends
  EXPECT_NEAR(labels.properties(BudgetLine::cover).slope, 0.1, 1e-6);
  EXPECT_NEAR(labels.properties(BudgetLine::cover).budget, -0.2, 1e-6);
  labels.budgets = {1, 1, 1, 1, 1};
  EXPECT_FLOAT_EQ(labels.properties(BudgetLine::cover).budget, 1);
  EXPECT_FLOAT_EQ(labels.properties(BudgetLine::cover).slope, 0);
  std::mt19937 random(3);
  for (int n = 0; n < 1000; ++n) {
    for (float& budget : labels.budgets) budget = static_cast<float>(random() % 64) / 64;
    const HeadProperties cover = labels.properties(BudgetLine::cover);
    int touched = 0;
    for (std::size_t i = 1; i < kLabelBlocks.size(); ++i) {
      const float at = cover.budget + cover.slope * std::log2(float(kLabelBlocks[i]));
      EXPECT_GE(at, labels.budgets[i] - 1e-5);
      touched += at < labels.budgets[i] + 1e-5 ? 1 : 0;
    }
    EXPECT_GE(touched, 2);
  }
}

TEST(LabelsByHand, EqualScoresAreTakenInOrder) {
  // All keys alike: blocks in index order, so that what matters, the last token, is found last.
  std::vector<float> keys(52, 1), values(52, 0);
  values[47] = 1;
  const float q = 1;
  const float* k = keys.data();
  const float* v = values.data();
  const LayerQuery layer{1, 1, 1, &q, {&k, 1}, {&v, 1}, {0, 48, 52, 52}};
  const std::vector<HostDigests> digests = {HostDigests(k, 48, 1)};
  const auto labels = label_heads(layer, attend_heads(layer), digests, {0.1, 0.95});
  EXPECT_THAT(labels[0][0].budgets, ::testing::ElementsAre(1, 1, 1, 1, 1));
  std::swap(values[47], values[0]);
  const auto first = label_heads(layer, attend_heads(layer), digests, {0.1, 0.95});
  // The value is found at once, but its share of the softmax is too large until nearly all others are there: 47 of 48
  // tokens leave 1/51 - 1/52 of 1/52, below 10 %; with c tokens chosen the output is 1 / (4 + c).
  EXPECT_FLOAT_EQ(first[0][0].budgets[0], 44.0f / 48);  // 52 / 48 - 1 = 0.083; 52 / 47 - 1 = 0.106
}

}  // namespace
}  // namespace tandem::testing
