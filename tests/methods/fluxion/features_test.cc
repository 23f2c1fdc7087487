// The 41 features against their definitions, in double precision and by other ways: moments from power sums, attention
// token by token, budgets set by set.
#include "methods/fluxion/features.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <numeric>
#include <set>

#include "tests/methods/fluxion/naive_features.h"

namespace tandem::testing {
namespace {

/// What a step's attention hands over, as floats.
struct Step {
  std::vector<float> sink_o, sink_lse, local_o, local_lse, device_o;
  explicit Step(const RandomLayer& layer) {
    const Segments& s = layer.segments;
    for (std::uint32_t h = 0; h < layer.q_heads; ++h) {
      put(layer.attend(h, range(0, s.sinks)), sink_o, sink_lse);
      put(layer.attend(h, range(s.window, s.prefill)), local_o, local_lse);
      std::vector<float> unused;
      put(layer.attend(h, device_tokens(s)), device_o, unused);
    }
  }
  static void put(const std::pair<Vec, double>& part, std::vector<float>& o, std::vector<float>& lse) {
    for (const double x : part.first) o.push_back(static_cast<float>(x));
    lse.push_back(static_cast<float>(part.second));
  }
  StepFeatures inputs(const RandomLayer& layer) const {
    return {.host_tokens = layer.segments.host(),
            .device_tokens = layer.segments.device(),
            .q = layer.q.data(),
            .sink_o = sink_o.data(),
            .sink_lse = sink_lse.data(),
            .local_o = local_o.data(),
            .local_lse = local_lse.data(),
            .device_o = device_o.data()};
  }
};

class Features : public ::testing::TestWithParam<BudgetPolicy> {};
INSTANTIATE_TEST_SUITE_P(Policies, Features,
                         ::testing::Values(BudgetPolicy::fluxion, BudgetPolicy::output, BudgetPolicy::score));

TEST_P(Features, EqualTheirDefinitions) {
  const Segments segments{16, 160, 180, 187};
  const BudgetLimits limits{0.07, 0.9};
  RandomLayer then(11, 2, 2, 8, segments), now(11, 2, 2, 8, segments);
  std::mt19937 random(3);
  for (float& x : now.q) x += 0.5f * std::normal_distribution<float>()(random);
  const PrefillStatistics prefill = prefill_statistics(3, then.anchor(), then.digests(), limits, GetParam());
  std::vector<float> out(std::size_t{now.q_heads} * kFeatures);
  const Step step(now);
  features(prefill, step.inputs(now), out.data());
  for (std::uint32_t h = 0; h < now.q_heads; ++h) {
    const Vec expected = naive_features(3, now, then, h, limits, GetParam());
    ASSERT_EQ(expected.size(), std::size_t{kFeatures});
    for (int f = 0; f < kFeatures; ++f)
      EXPECT_NEAR(out[std::size_t{h} * kFeatures + f], expected[f], 2e-5 * std::max(1.0, std::abs(expected[f])))
          << "head " << h << ", " << feature_names()[f];
  }
}

TEST(Features, OnlyElevenColumnsChangeWithTheStep) {
  const Segments segments{16, 96, 110, 112};
  const RandomLayer first(1, 1, 2, 8, segments), second(2, 1, 2, 8, {16, 112, 120, 125});
  const PrefillStatistics prefill = prefill_statistics(0, first.anchor(), first.digests(), {});
  std::vector<float> a(2 * kFeatures), b(a);
  const Step here(first), there(second);
  features(prefill, here.inputs(first), a.data());
  features(prefill, there.inputs(second), b.data());
  std::set<int> changed;
  for (int i = 0; i < 2 * kFeatures; ++i) {
    if (a[i] != b[i]) changed.insert(i % kFeatures);
  }
  EXPECT_THAT(changed, ::testing::ElementsAre(kHostTokens, kDeviceTokens, kMeanScore, kSinkLse, kHostLse, kLocalLse,
                                              kSinkOutput, kLocalOutput, kQueryNorm, kCosine, kLargestOutput));
}

TEST(Features, AreFiniteAtTheEdges) {
  // No sinks, equal keys and values, a query of zeros.
  RandomLayer layer(1, 1, 1, 8, {0, 16, 32, 33});
  std::fill(layer.q.begin(), layer.q.end(), 0.0f);
  std::fill(layer.keys[0].begin(), layer.keys[0].end(), 0.1f);
  std::fill(layer.values[0].begin(), layer.values[0].end(), 0.1f);
  const PrefillStatistics prefill = prefill_statistics(0, layer.anchor(), layer.digests(), {});
  Step step(layer);
  step.sink_o.assign(8, 0);
  step.sink_lse.assign(1, -std::numeric_limits<float>::infinity());
  std::vector<float> out(kFeatures);
  features(prefill, step.inputs(layer), out.data());
  for (int f = 0; f < kFeatures; ++f) EXPECT_TRUE(std::isfinite(out[f])) << feature_names()[f];
  EXPECT_EQ(out[kSinkLse], kEmptyLse);
  EXPECT_EQ(out[kKeyNorms + 3], 0);
  EXPECT_EQ(out[kCosine], 0);
}

TEST(Features, HaveNamesOfTheirOwn) {
  const std::set<std::string_view> names(feature_names().begin(), feature_names().end());
  EXPECT_EQ(names.size(), std::size_t{kFeatures});
  EXPECT_EQ(names.count(""), 0u);
  EXPECT_EQ(feature_names()[kHostLse], "host_lse");
  EXPECT_EQ(feature_names()[kAnchorBudgets], "anchor_budget_16");
  EXPECT_EQ(feature_names()[kScores], "anchor_score_mean");
  EXPECT_EQ(feature_names()[kLargestOutput], "largest_device_output");
}

}  // namespace
}  // namespace tandem::testing
