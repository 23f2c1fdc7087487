// Logits equal Hugging Face transformers (goldens made by scripts/make_goldens.py).
#include "tests/golden/golden.h"

#include <cmath>
#include <gtest/gtest.h>

#include "methods/registry.h"
#include "tests/engine/runtime/tiny.h"

namespace tandem::testing {
namespace {

class Goldens : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Transformers, Goldens,
                         ::testing::Values("embedded", "tiny_llama", "tiny_llama2", "tiny_llama31", "tiny_qwen2",
                                           "tiny_qwen25", "tiny_qwen3"),
                         [](const auto& param) { return std::string(param.param); });

Model model_of(const Golden& golden) {
  return load_model(golden.model, golden.model == "embedded");
}

double worst_difference(const float* logits, const Golden& golden, std::size_t i) {
  double worst = 0;
  for (std::uint32_t v = 0; v < golden.vocab; ++v) {
    worst = std::max(worst, std::abs(double(logits[v]) - double(golden.logits[i * golden.vocab + v])));
  }
  return worst;
}

TEST_P(Goldens, PrefillLogitsAgree) {
  const Golden golden = load_golden(GetParam());
  Bench bench(model_of(golden));
  ASSERT_EQ(golden.vocab, bench.model.config.vocab);
  const std::vector<float> logits = bench.engine.prefill_logits(golden.tokens);
  double worst = 0;
  for (std::size_t i = 0; i < golden.positions.size(); ++i) {
    const double difference =
        worst_difference(logits.data() + golden.positions[i] * std::size_t{golden.vocab}, golden, i);
    EXPECT_LT(difference, 1e-3) << "position " << golden.positions[i];
    worst = std::max(worst, difference);
  }
  std::printf("%s: largest difference of a logit, prefill: %.2g\n", GetParam(), worst);
}

TEST_P(Goldens, DecodeLogitsAgree) {  // every token but the first through the decode path
  const Golden golden = load_golden(GetParam());
  Bench bench(model_of(golden));
  const std::vector<std::vector<std::int32_t>> forced = {{golden.tokens.begin() + 1, golden.tokens.end()}};
  std::vector<std::vector<float>> steps;
  const auto full = make_method("full");
  bench.decode(*full, {{golden.tokens.front()}}, static_cast<std::uint32_t>(forced[0].size()),
               {.logits = &steps, .forced = forced});
  double worst = 0;
  std::size_t compared = 0;
  for (std::size_t i = 0; i < golden.positions.size(); ++i) {
    if (golden.positions[i] >= steps.size()) continue;
    const double difference = worst_difference(steps[golden.positions[i]].data(), golden, i);
    EXPECT_LT(difference, 1e-3) << "position " << golden.positions[i];
    worst = std::max(worst, difference);
    ++compared;
  }
  EXPECT_GT(compared, 10u);
  std::printf("%s: largest difference of a logit, decode: %.2g\n", GetParam(), worst);
}

TEST_P(Goldens, GreedyContinuationAgrees) {
  const Golden golden = load_golden(GetParam());
  ASSERT_FALSE(golden.greedy.empty());
  Bench bench(model_of(golden));
  bench.model.config.stop_tokens.clear();
  const auto full = make_method("full");
  const DecodeResult result = bench.decode(*full, {golden.tokens}, static_cast<std::uint32_t>(golden.greedy.size()));
  EXPECT_EQ(result.sequences[0].tokens, golden.greedy);
}

}  // namespace
}  // namespace tandem::testing
