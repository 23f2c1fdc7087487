// The profile of predicted queries against queries and keys of the double-precision model.
#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <numeric>

#include "eval/heads/report.h"
#include "eval/report/statistics.h"
#include "tests/engine/runtime/slow_model.h"
#include "tests/engine/runtime/tiny.h"

namespace tandem::testing {
namespace {

using Vector = SlowModel::Vector;

std::vector<std::size_t> best(const Vector& q, const std::vector<Vector>& keys, std::size_t n, std::size_t keep) {
  std::vector<double> score(n);
  for (std::size_t t = 0; t < n; ++t) score[t] = std::inner_product(q.begin(), q.end(), keys[t].begin(), 0.0);
  std::vector<std::size_t> order(n);
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return score[a] > score[b]; });
  order.resize(keep);
  std::sort(order.begin(), order.end());
  return order;
}

double overlap(const std::vector<std::size_t>& a, const std::vector<std::size_t>& b) {
  std::vector<std::size_t> both;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
  return double(both.size()) / double(a.size());
}

Vector rotated(Vector q, double position, double theta) {
  const std::size_t half = q.size() / 2;
  for (std::size_t i = 0; i < half; ++i) {
    const double angle = position * std::pow(theta, -2.0 * double(i) / double(q.size()));
    const double a = q[i], b = q[half + i];
    q[i] = a * std::cos(angle) - b * std::sin(angle);
    q[half + i] = b * std::cos(angle) + a * std::sin(angle);
  }
  return q;
}

class QueryShift : public ::testing::Test {
 protected:
  static constexpr std::uint32_t kFirst = 60;
  QueryShift() : bench(tiny_model(true, 2)), prompt{"text", random_prompt(81, 3), kFirst} {
    options.window = 4;
    profile = eval::profile_query_shift(bench.model, bench.engine, bench.pool, {prompt}, options);
    SlowModel slow(bench.model);
    queries.resize(2, std::vector<std::vector<Vector>>(4));
    for (std::size_t t = 0; t < 80; ++t) {
      slow.step(prompt.tokens[t], {},
                [&](std::uint32_t layer, const Vector&, const Vector& q, const auto& k, const auto&) {
                  for (std::size_t h = 0; h < 4; ++h)
                    queries[layer][h].emplace_back(q.begin() + std::ptrdiff_t(16 * h),
                                                   q.begin() + std::ptrdiff_t(16 * h + 16));
                  keys[layer] = k;
                });
    }
  }
  /// Mean of overlap(true choice, choice by guess(layer, head, token)) over a layer.
  template <class Guess>
  double mean(std::uint32_t layer, const Guess& guess) {
    double sum = 0;
    for (std::size_t t = kFirst; t < 80; ++t) {
      for (std::size_t h = 0; h < 4; ++h) {
        const std::vector<Vector>& k = keys[layer][h / 2];
        const std::size_t keep = std::max<std::size_t>(1, t / 8);
        sum += overlap(best(queries[layer][h][t], k, t, keep), best(guess(h, t), k, t, keep));
      }
    }
    return sum / (20 * 4);
  }
  Bench bench;
  eval::HeadPrompt prompt;
  eval::ShiftOptions options;
  eval::ShiftProfile profile;
  std::vector<std::vector<std::vector<Vector>>> queries;  // [layer][head][token]
  std::vector<std::vector<Vector>> keys[2];
};

TEST_F(QueryShift, OverlapsByDistanceAreThoseOfTheDoublePrecisionModel) {
  EXPECT_EQ(profile.queries, 20u);
  for (std::uint32_t layer = 0; layer < 2; ++layer) {
    for (std::size_t distance = 1; distance <= 4; ++distance) {
      const double expected =
          mean(layer, [&](std::size_t h, std::size_t t) { return queries[layer][h][t - distance]; });
      EXPECT_NEAR(profile.by_distance[layer][distance - 1], expected, 2e-3) << layer << " at " << distance;
    }
  }
}

TEST_F(QueryShift, EachReadingIsThatOfItsWeights) {
  ASSERT_EQ(profile.variants.size(), 16u);
  for (const eval::ShiftProfile::Variant& v : profile.variants) {
    const PredictionRule& rule = v.rule;
    for (const bool shift : {true, false}) {
      const double expected = mean(1, [&](std::size_t h, std::size_t t) {
        const std::size_t newest = shift ? t - 1 : t;  // what the weights are found for
        std::vector<float> past;
        for (std::size_t i = newest - 4; i <= newest; ++i) {
          const Vector q = rule.pre_rope ? rotated(queries[1][h][i], -double(i), 10000) : queries[1][h][i];
          for (const double x : q) past.push_back(float(x));
        }
        const Vector weights = lag_weights(rule, past.data(), 5, 16);
        std::vector<float> out(16);
        apply_lag_weights(rule, weights, past.data(), 5, 16, shift, out.data());
        const Vector guess(out.begin(), out.end());
        return rule.pre_rope ? rotated(guess, double(t), 10000) : guess;
      });
      EXPECT_NEAR((shift ? v.with_shift : v.without)[1], expected, 4e-3) << v.name() << " shift " << shift;
    }
  }
}

// Of two prompts with 20 and 10 queries: means over all queries, means and deviations over the prompts, and who wins.
TEST_F(QueryShift, PromptsAreWeighedByTheirQueriesAndComparedOneByOne) {
  const eval::HeadPrompt shorter{"other", random_prompt(51, 8), 40};
  const eval::ShiftProfile own = eval::profile_query_shift(bench.model, bench.engine, bench.pool, {shorter}, options);
  const eval::ShiftProfile both =
      eval::profile_query_shift(bench.model, bench.engine, bench.pool, {prompt, shorter}, options);
  ASSERT_EQ(both.each_prompt.size(), 2u);
  EXPECT_EQ(both.queries, 30u);
  EXPECT_EQ(both.tokens, 130u);
  std::size_t wins = 0;
  for (std::size_t v = 0; v < both.variants.size(); ++v) {
    const double a = eval::mean(profile.variants[v].with_shift), b = eval::mean(own.variants[v].with_shift);
    EXPECT_NEAR(both.each_prompt[0].with_shift[v], a, 1e-12);
    EXPECT_NEAR(both.each_prompt[1].with_shift[v], b, 1e-12);
    EXPECT_NEAR(both.each_prompt[1].without[v], eval::mean(own.variants[v].without), 1e-12);
    EXPECT_NEAR(eval::mean(both.variants[v].with_shift), (20 * a + 10 * b) / 30, 1e-12);
    // Of two numbers the deviation is their distance over the root of 2.
    EXPECT_NEAR(both.spread([v](const auto& p) { return p.with_shift[v]; }), std::abs(a - b) / std::sqrt(2), 1e-12);
    wins += both.wins(v);
  }
  EXPECT_NEAR(both.each_prompt[1].by_distance[2], eval::column_means(own.by_distance)[2], 1e-12);
  EXPECT_GE(wins, 2u);
  const auto best_of = [&](std::size_t p) {
    const std::vector<double>& x = both.each_prompt[p].with_shift;
    return static_cast<std::size_t>(std::max_element(x.begin(), x.end()) - x.begin());
  };
  const std::size_t first = best_of(0), second = best_of(1);
  EXPECT_EQ(both.wins(first), first == second ? 2u : 1u);
}

TEST(QueryShiftWins, RoundingDecidesNothing) {
  eval::ShiftProfile profile;
  profile.variants.resize(3);
  profile.each_prompt = {{{{}, {0.1 + 0.2, 0.3, 0.2}, {}}, "a"}, {{{}, {0.5, 0.5001, 0.1}, {}}, "b"}};
  EXPECT_EQ(profile.wins(0), 1u);
  EXPECT_EQ(profile.wins(1), 2u);
  EXPECT_EQ(profile.wins(2), 0u);
}

TEST_F(QueryShift, TheReportNamesEveryReading) {
  const std::string text = eval::query_shift_text(profile, {});
  for (const eval::ShiftProfile::Variant& v : profile.variants)
    EXPECT_NE(text.find(v.name()), std::string::npos) << v.name();
  EXPECT_EQ(eval::query_shift_json(profile, {})["variants"].size(), 16u);
}

}  // namespace
}  // namespace tandem::testing
