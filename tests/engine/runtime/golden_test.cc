// Logits equal Hugging Face transformers (goldens made by scripts/make_goldens.py).
#include <gtest/gtest.h>

#include <cmath>

#include "methods/registry.h"
#include "tests/engine/runtime/tiny.h"
#include "tests/golden/golden.h"

namespace tandem::testing {
namespace {

class Goldens : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Transformers, Goldens, ::testing::Values("embedded", "tiny_llama", "tiny_qwen3"),
                         [](const auto& param) { return std::string(param.param); });

TEST_P(Goldens, LogitsAgreeThroughPrefillAndDecode) {
  const Golden golden = load_golden(GetParam());
  Bench bench(load_model(golden.model_folder));
  const std::uint32_t vocab = bench.model.config.vocab;
  const std::vector<float> logits = bench.engine.prefill_logits(golden.tokens);
  ASSERT_FALSE(golden.positions.empty());
  for (std::size_t i = 0; i < golden.positions.size(); ++i) {
    double worst = 0;
    for (std::uint32_t v = 0; v < vocab; ++v) {
      worst = std::max(worst, std::abs(double(logits[golden.positions[i] * std::size_t{vocab} + v]) -
                                       double(golden.logits[i * vocab + v])));
    }
    EXPECT_LT(worst, 1e-3) << "prefill, position " << golden.positions[i];
  }
  // The same tokens one by one through the decode path, from the first golden position on.
  const std::uint32_t first = golden.positions.front();
  const std::vector<std::int32_t> prompt(golden.tokens.begin(), golden.tokens.begin() + first + 1);
  const std::vector<std::vector<std::int32_t>> forced = {{golden.tokens.begin() + first + 1, golden.tokens.end()}};
  if (forced[0].empty()) return;
  std::vector<std::vector<float>> steps;
  DecodeOptions options{.logits = &steps, .forced = forced};
  const auto full = make_method("full");
  bench.decode(*full, {prompt}, static_cast<std::uint32_t>(forced[0].size()), options);
  for (std::size_t i = 0; i < golden.positions.size(); ++i) {
    const std::size_t step = golden.positions[i] - first;
    if (step >= steps.size()) continue;
    double worst = 0;
    for (std::uint32_t v = 0; v < vocab; ++v) {
      worst = std::max(worst, std::abs(double(steps[step][v]) - double(golden.logits[i * vocab + v])));
    }
    EXPECT_LT(worst, 1e-3) << "decode, position " << golden.positions[i];
  }
}

TEST_P(Goldens, GreedyContinuationAgrees) {
  const Golden golden = load_golden(GetParam());
  if (golden.greedy.empty()) GTEST_SKIP() << "this golden has no continuation";
  Bench bench(load_model(golden.model_folder));
  bench.model.config.stop_tokens.clear();
  const auto full = make_method("full");
  const DecodeResult result = bench.decode(*full, {golden.tokens}, static_cast<std::uint32_t>(golden.greedy.size()));
  EXPECT_EQ(result.sequences[0].tokens, golden.greedy);
}

}  // namespace
}  // namespace tandem::testing
