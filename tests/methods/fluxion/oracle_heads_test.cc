// heads=oracle against labels of a double-precision model, and what is measured of the heads' errors against attention
// computed from scratch.
#include "methods/fluxion/oracle_heads.h"

#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/common/error.h"
#include "methods/registry.h"
#include "tests/engine/runtime/slow_model.h"
#include "tests/engine/runtime/tiny.h"

namespace tandem::testing {
namespace {

using Vector = SlowModel::Vector;
constexpr std::uint32_t kPrefill = 422;

/// One layer of the slow model in f32.
struct OracleLayer {
  std::vector<float> q;
  std::vector<std::vector<float>> keys, values;
  std::vector<const float*> key_rows, value_rows;
  LayerQuery query;

  OracleLayer(const ModelConfig& c, const Vector& now, const std::vector<std::vector<Vector>>& k,
              const std::vector<std::vector<Vector>>& v, const Segments& at)
      : q(now.begin(), now.end()), keys(c.kv_heads), values(c.kv_heads) {
    for (std::uint32_t g = 0; g < c.kv_heads; ++g) {
      for (const Vector& row : k[g]) keys[g].insert(keys[g].end(), row.begin(), row.end());
      for (const Vector& row : v[g]) values[g].insert(values[g].end(), row.begin(), row.end());
      key_rows.push_back(keys[g].data());
      value_rows.push_back(values[g].data());
    }
    query = {c.q_heads, c.kv_heads, c.head_dim, q.data(), key_rows, value_rows, at};
  }
  std::vector<HostDigests> digests() const {
    std::vector<HostDigests> out;
    for (const float* rows : key_rows)
      out.emplace_back(rows + std::size_t{query.segments.sinks} * query.dim, query.segments.host(), query.dim);
    return out;
  }
};

struct OracleRule {
  const char* options;
  BudgetPolicy policy;
  double tau;
  BudgetLine line;
};
void PrintTo(const OracleRule& rule, std::ostream* out) {
  *out << rule.options;
}
class FluxionOracle : public ::testing::TestWithParam<OracleRule> {};
INSTANTIATE_TEST_SUITE_P(
    Rules, FluxionOracle,
    ::testing::Values(OracleRule{",tau=0.5", BudgetPolicy::fluxion, 0.5, BudgetLine::measured},
                      OracleRule{",tau=0.03,line=cover", BudgetPolicy::fluxion, 0.03, BudgetLine::cover},
                      OracleRule{",budgets=output,line=cover", BudgetPolicy::output, 0.1, BudgetLine::cover},
                      OracleRule{",budgets=score,line=cover", BudgetPolicy::score, 0.1, BudgetLine::cover}));

// The slow model chooses what its own labels ask for; where engine and model agree on every logit, they attended alike.
TEST_P(FluxionOracle, EachHeadAttendsWhatItsLabelsAskFor) {
  const OracleRule& rule = GetParam();
  Bench bench(tiny_model());
  const ModelConfig& c = bench.model.config;
  const std::uint32_t group = c.q_heads / c.kv_heads;
  const std::vector<std::int32_t> prompt = random_prompt(kPrefill + 1, 21);
  std::vector<std::vector<float>> logits;
  std::vector<HeadErrors> seen_errors;
  const std::string spec = std::string("fluxion:sinks=16,window=32,heads=oracle") + rule.options;
  const auto method =
      make_watched_fluxion(parse_method_spec(spec), [&](const HeadErrors& errors) { seen_errors.push_back(errors); });
  const DecodeResult result = bench.decode(*method, {prompt}, 6, {.logits = &logits});
  ASSERT_EQ(seen_errors.size(), 6u * c.layers);

  SlowModel slow(bench.model);
  std::vector<HeadProperties> said(c.q_heads);
  std::vector<double> errors, shares;  // of the heads, in the order of the layers
  const SlowModel::Look look = [&](std::uint32_t, const Vector&, const Vector& q, const auto& keys,
                                   const auto& values) {
    const Segments at = fluxion_segments(kPrefill, static_cast<std::uint32_t>(keys[0].size()), 16, 32);
    const OracleLayer data(c, q, keys, values, at);
    const auto digests = data.digests();
    const auto heads = attend_heads(data.query);
    const auto labels = label_heads(data.query, heads, digests, BudgetLimits{rule.tau, 0.95});
    double largest = 0;
    for (std::uint32_t h = 0; h < c.q_heads; ++h) {
      said[h] = labels[h][static_cast<std::size_t>(rule.policy)].properties(rule.line);
      largest = std::max(largest, heads[h].full.norm());
    }
    for (std::uint32_t h = 0; h < c.q_heads; ++h) {
      const std::uint32_t first = h / group * group;
      const GroupChoice choice =
          choose_granularity(std::span(said).subspan(first, group), at.host(), SelectorStage::skip);
      errors.push_back(selection_error(heads[h], data.q.data() + std::size_t{h} * c.head_dim,
                                       data.value_rows[h / group] + std::size_t{at.sinks} * c.head_dim,
                                       digests[h / group], choice.block, choice.keep[h - first]) /
                       largest);
      shares.push_back(choice.keep[h - first]);
    }
  };
  const SlowModel::Visible visible = [&](std::uint32_t, std::uint32_t h, const Vector& q,
                                         const std::vector<Vector>& keys) {
    const Segments at = fluxion_segments(kPrefill, static_cast<std::uint32_t>(keys.size()), 16, 32);
    const std::uint32_t first = h / group * group;
    const GroupChoice choice =
        choose_granularity(std::span(said).subspan(first, group), at.host(), SelectorStage::skip);
    std::vector<bool> seen(keys.size());
    for (std::uint32_t t = 0; t < seen.size(); ++t) seen[t] = t < at.sinks || t >= at.window;
    std::vector<std::pair<double, std::uint32_t>> order;
    for (std::uint32_t t = at.sinks; t < at.window; t += choice.block) {
      double bound = 0;
      for (std::size_t d = 0; d < q.size(); ++d) {
        double best = -INFINITY;
        for (std::uint32_t i = t; i < std::min(t + choice.block, at.window); ++i)
          best = std::max(best, q[d] * keys[i][d]);
        bound += best;
      }
      order.emplace_back(-bound, t);
    }
    std::sort(order.begin(), order.end());
    for (std::size_t i = 0; i < std::min<std::size_t>(choice.keep[h - first], order.size()); ++i) {
      for (std::uint32_t t = order[i].second; t < std::min(order[i].second + choice.block, at.window); ++t)
        seen[t] = true;
    }
    return seen;
  };
  for (std::uint32_t t = 0; t < kPrefill; ++t) slow.step(prompt[t]);
  for (std::size_t n = 0; n < logits.size(); ++n) {
    const Vector expected = slow.step(n == 0 ? prompt.back() : result.sequences[0].tokens[n - 1], visible, look);
    double worst = 0;
    for (std::size_t i = 0; i < expected.size(); ++i)
      worst = std::max(worst, std::abs(expected[i] - double(logits[n][i])));
    EXPECT_LT(worst, 3e-4) << "step " << n;
  }
  ASSERT_EQ(errors.size(), seen_errors.size() * c.q_heads);
  int none = 0, some = 0;
  for (std::size_t i = 0; i < errors.size(); ++i) {
    const double found = seen_errors[i / c.q_heads].relative[i % c.q_heads];
    EXPECT_NEAR(found, errors[i], 1e-3);
    if (rule.policy == BudgetPolicy::fluxion && rule.line == BudgetLine::cover) {
      EXPECT_LE(found, rule.tau + 1e-4);  // a line that is nowhere too low keeps Eq. 2
    }
    const double attended = seen_errors[i / c.q_heads].attended[i % c.q_heads];
    EXPECT_EQ(attended == 0, shares[i] == 0);
    none += attended == 0 ? 1 : 0;
    some += attended > 0 && attended < 1 ? 1 : 0;
  }
  EXPECT_GT(some, 0);
  EXPECT_EQ(none > 0, rule.tau == 0.5);  // streaming heads
}

TEST(FluxionOracleErrors, AreThoseOfAttentionFromScratch) {
  Bench bench(tiny_model());
  const ModelConfig& c = bench.model.config;
  const std::vector<std::int32_t> prompt = random_prompt(kPrefill + 1, 4);
  std::vector<HeadErrors> seen_errors;
  const auto method =
      make_watched_fluxion(parse_method_spec("fluxion:sinks=16,window=32,bgt=0.1,slope=0,stage=fixed16"),
                           [&](const HeadErrors& errors) { seen_errors.push_back(errors); });
  const std::vector<std::int32_t> same = bench.decode(*method, {prompt}, 3).sequences[0].tokens;
  const auto plain = make_method("fluxion:sinks=16,window=32,bgt=0.1,slope=0,stage=fixed16");
  EXPECT_EQ(bench.decode(*plain, {prompt}, 3).sequences[0].tokens, same);
  ASSERT_EQ(seen_errors.size(), 3u * c.layers);
  for (const HeadErrors& errors : seen_errors) {
    ASSERT_EQ(errors.relative.size(), c.q_heads);
    // 368 host tokens, 10 % are 2.3 blocks of 16: three.
    EXPECT_THAT(errors.attended, ::testing::Each(::testing::DoubleEq(48.0 / 368)));
    EXPECT_THAT(errors.relative, ::testing::Each(::testing::Gt(0)));
  }
}

TEST(FluxionOracle, WhatItCannotMeasureIsRefused) {
  const auto ignore = [](const HeadErrors&) {};
  try {
    make_watched_fluxion(parse_method_spec("fluxion:spill=16"), ignore);
    FAIL() << "spilled tokens have no copy";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("give spill=0"));
  }
  Bench bench(tiny_model());
  const auto spills = make_method("fluxion:sinks=16,window=32,spill=1,heads=oracle");
  try {
    bench.decode(*spills, {random_prompt(423, 1)}, 200);
    FAIL() << "labels without what was spilled";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("give spill=0"));
  }
  const auto heads = oracle_heads(BudgetPolicy::fluxion, {}, BudgetLine::measured, nullptr);
  std::vector<HeadProperties> out(4);
  try {
    heads->properties({2, 48, 4, 2, 16}, {{}, {16, 160}, nullptr}, out.data());
    FAIL() << "labels of a simulated shape";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("where only a shape is simulated"));
  }
}

}  // namespace
}  // namespace tandem::testing
