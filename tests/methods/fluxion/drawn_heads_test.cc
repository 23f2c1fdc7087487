// Heads drawn as a file spreads them: shares and means as asked, the same in every run, and who may use them.
#include "methods/fluxion/drawn_heads.h"

#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/common/error.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr const char* kText =
    R"({"name": "n", "source": "s", "group": 0.5, "lasting": 0.25, "predictor_parameters": 1000,
 "rules": {"fluxion": {"mean": 0.02, "growth": 0.4, "streaming": 0.6},
           "output": {"mean": 0.04, "growth": 0.3, "streaming": 0.3},
           "score": {"mean": 0.08, "growth": 0.2, "streaming": 0.1}},
 "errors": [{"error": 0.05, "mean": 0.05, "growth": 0.1, "streaming": 0.3}]})";

const ModelShape kShape = {.layers = 32, .q_heads = 32, .kv_heads = 8, .head_dim = 128};

std::vector<HeadProperties> drawn(const HeadSource& source, std::uint32_t request, std::uint32_t layer,
                                  std::uint32_t tokens, std::uint32_t row = 0, const float* query = nullptr) {
  std::vector<HeadProperties> out(kShape.q_heads);
  HeadInputs inputs;
  inputs.request = request;
  inputs.view.row = row;
  inputs.view.query = query;
  inputs.view.layer = layer;
  inputs.view.tokens = tokens;
  source.properties(kShape, inputs, out.data());
  return out;
}

TEST(DrawnHeads, SharesAndMeansAreThoseOfTheFile) {
  const HeadSpreads spreads = parse_head_spreads(kText, "x.json");
  for (const BudgetPolicy policy : {BudgetPolicy::fluxion, BudgetPolicy::output, BudgetPolicy::score}) {
    const HeadSpread& rule = spreads.rules[static_cast<std::size_t>(policy)];
    const auto source = drawn_heads(spreads, policy);
    double streaming = 0, budget = 0, together = 0, n = 0;
    for (std::uint32_t request = 0; request < 64; ++request) {
      for (std::uint32_t layer = 0; layer < 32; ++layer) {
        const std::vector<HeadProperties> heads = drawn(*source, request, layer, 5000 + request);
        for (std::uint32_t h = 0; h < heads.size(); ++h, ++n) {
          streaming += heads[h].streaming ? 1 : 0;
          budget += heads[h].budget;
          EXPECT_NEAR(heads[h].slope, rule.growth * heads[h].budget, 1e-6);
          // Exactly those that need least.
          EXPECT_EQ(heads[h].streaming, heads[h].budget < -rule.mean * std::log(1 - rule.streaming));
          if (h % 4 != 0) continue;
          together += heads[h].streaming && heads[h + 1].streaming ? 1 : 0;
        }
      }
    }
    EXPECT_NEAR(streaming / n, rule.streaming, 0.03);
    EXPECT_NEAR(budget / n, rule.mean, 0.06 * rule.mean);
    EXPECT_GT(together / (n / 4), rule.streaming * rule.streaming * 1.05);  // heads of a group are alike
  }
}

TEST(DrawnHeads, AHeadKeepsAPartOfItsNeedAndDrawsTheRest) {
  const auto source = drawn_heads(parse_head_spreads(kText, "x.json"), BudgetPolicy::fluxion);
  const auto budgets = [&](std::uint32_t request, std::uint32_t layer, std::uint32_t tokens) {
    std::vector<float> out;
    for (const HeadProperties& head : drawn(*source, request, layer, tokens)) out.push_back(head.budget);
    return out;
  };
  EXPECT_EQ(budgets(1, 2, 300), budgets(1, 2, 300));
  EXPECT_NE(budgets(1, 2, 300), budgets(1, 2, 301));
  EXPECT_NE(budgets(1, 2, 300), budgets(0, 2, 300));
  EXPECT_NE(budgets(1, 2, 300), budgets(1, 3, 300));
  HeadSpreads lasting = parse_head_spreads(kText, "x.json");
  lasting.lasting = 1;
  const auto always = drawn_heads(lasting, BudgetPolicy::fluxion);
  EXPECT_EQ(drawn(*always, 0, 2, 300)[5].budget, drawn(*always, 1, 2, 999)[5].budget);
}

/// Invariant B: a sequence moves to another row when one before it ends.
TEST(DrawnHeads, ASequenceDrawsTheSameWhateverIsInTheBatch) {
  const auto source = drawn_heads(parse_head_spreads(kText, "x.json"), BudgetPolicy::fluxion);
  const auto same = [](const std::vector<HeadProperties>& a, const std::vector<HeadProperties>& b) {
    for (std::size_t h = 0; h < a.size(); ++h) {
      if (a[h].budget != b[h].budget || a[h].streaming != b[h].streaming) return false;
    }
    return true;
  };
  EXPECT_TRUE(same(drawn(*source, 3, 2, 300, 3), drawn(*source, 3, 2, 300, 0)));
  EXPECT_FALSE(same(drawn(*source, 3, 2, 300), drawn(*source, 2, 2, 300)));
  // A real run knows the sequence by its query: one at a time, all have the number 0.
  std::vector<float> query(std::size_t{kShape.q_heads} * kShape.head_dim, 0.5f), other = query;
  other.back() = 0.25f;
  EXPECT_TRUE(same(drawn(*source, 0, 2, 300, 0, query.data()), drawn(*source, 3, 2, 300, 3, query.data())));
  EXPECT_FALSE(same(drawn(*source, 0, 2, 300, 0, query.data()), drawn(*source, 0, 2, 300, 0, other.data())));
}

TEST(DrawnHeads, CostsWhatANetworkOfThatSizeDoes) {
  const auto source = drawn_heads(parse_head_spreads(kText, "x.json"), BudgetPolicy::fluxion);
  const Cost cost = source->cost(kShape, 2);
  EXPECT_EQ(cost.flops, 2u * 1000 * 64 + 12 * 64 * 128);
  EXPECT_EQ(cost.hbm, 4000u + 64 * (3 * 41 + 128) * 4 + 2 * 8 * 128 * 4);
}

TEST(DrawnHeads, AFileThatSaysNothingIsASentence) {
  const auto parse = [](const std::string& from, const std::string& to) {
    std::string text = kText;
    text.replace(text.find(from), from.size(), to);
    return [text] { parse_head_spreads(text, "x.json"); };
  };
  EXPECT_THAT(parse("\"output\"", "\"outputs\""), ThrowsMessage<InputError>(HasSubstr("output")));
  EXPECT_THAT(parse("0.6", "1.6"), ThrowsMessage<InputError>(HasSubstr("rules.fluxion.streaming is 1.6")));
  EXPECT_THAT(parse("\"group\": 0.5", "\"group\": -1"), ThrowsMessage<InputError>(HasSubstr("x.json: group is -1")));
  EXPECT_THAT(parse("{", "["), ThrowsMessage<InputError>(HasSubstr("x.json")));
  const HeadSpreads spreads = parse_head_spreads(kText, "x.json");
  EXPECT_EQ(at_error(spreads, 0.05).rules[0].mean, 0.05);
  EXPECT_EQ(at_error(spreads, 0.05).rules[1].mean, 0.04);
  EXPECT_THAT([&] { at_error(spreads, 0.07); }, ThrowsMessage<InputError>(HasSubstr("there are 0.05")));
  EXPECT_THROW(make_fluxion(parse_method_spec("fluxion:heads=published,tau=0.07"), nullptr), InputError);
  EXPECT_NO_THROW(make_fluxion(parse_method_spec("fluxion:heads=published,tau=0.05"), nullptr));
  EXPECT_THROW(make_fluxion(parse_method_spec("fluxion:heads=published,tau=0.05,budgets=score"), nullptr), InputError);
  EXPECT_GT(published_head_spreads().rules[2].mean, published_head_spreads().rules[0].mean);
}

}  // namespace
}  // namespace tandem
