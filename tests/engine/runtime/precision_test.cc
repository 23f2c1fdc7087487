// EngineOptions::precision against the double-precision model that rounds the same numbers.
#include <gtest/gtest.h>

#include "methods/registry.h"
#include "tests/engine/runtime/slow_model.h"
#include "tests/engine/runtime/tiny.h"

namespace tandem::testing {
namespace {

class PrecisionTest : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Types, PrecisionTest, ::testing::Values(DType::f32, DType::f16, DType::bf16),
                         [](const auto& param) { return to_string(param.param); });

constexpr std::uint32_t kSteps = 6;

EngineOptions options(DType precision) {
  EngineOptions engine;
  engine.precision = precision;
  return engine;
}

std::vector<std::vector<float>> engine_logits(DType precision, const std::vector<std::int32_t>& prompt,
                                              const std::vector<std::int32_t>& forced, const std::string& spec) {
  Bench bench(tiny_model(), sim(), options(precision));
  std::vector<std::vector<float>> logits;
  const std::vector<std::vector<std::int32_t>> fed = {forced};
  bench.decode(*make_method(spec), {prompt}, kSteps, {.logits = &logits, .forced = fed});
  return logits;
}

/// Largest difference of any step's logits from the slow model's.
double distance(const std::vector<std::vector<float>>& logits, DType precision, bool rounds_inputs,
                const std::vector<std::int32_t>& prompt, const std::vector<std::int32_t>& forced) {
  const Model model = tiny_model();
  SlowModel slow(model);
  slow.precision = precision;
  slow.rounds_inputs = rounds_inputs;
  for (std::size_t i = 0; i + 1 < prompt.size(); ++i) slow.step(prompt[i]);
  slow.rounds_inputs = false;
  double worst = 0;
  for (std::size_t step = 0; step < logits.size(); ++step) {
    const auto expected = slow.step(step == 0 ? prompt.back() : forced[step - 1]);
    for (std::size_t i = 0; i < expected.size(); ++i)
      worst = std::max(worst, std::abs(expected[i] - double(logits[step][i])));
  }
  return worst;
}

TEST_P(PrecisionTest, LogitsAreThoseOfTheSameRoundingInDoublePrecision) {
  const auto prompt = random_prompt(90, 3), forced = random_prompt(kSteps, 4);
  for (const std::string method : {"full", "hybrid-fixed:budget=1,block=16,sinks=0,window=16"}) {
    const auto logits = engine_logits(GetParam(), prompt, forced, method);
    ASSERT_EQ(logits.size(), kSteps);
    const double same = distance(logits, GetParam(), GetParam() == DType::bf16, prompt, forced);
    const double unrounded = distance(logits, DType::f32, false, prompt, forced);
    std::printf("%s, %s: %.2g from the same rounding, %.2g from none\n", to_string(GetParam()), method.c_str(), same,
                unrounded);
    if (GetParam() == DType::f32) {
      EXPECT_LT(same, 2e-5);
      continue;
    }
    // A number that lies near the middle between two stored ones may be rounded to the other one. With bf16 the kernel
    // also rounds the weights of values, relative to a maximum that depends on how tokens are cut into tiles: the model
    // does not repeat that.
    EXPECT_LT(same, (GetParam() == DType::bf16 ? 0.6 : 0.25) * unrounded);
    if (GetParam() == DType::bf16) {
      EXPECT_GT(distance(logits, GetParam(), false, prompt, forced), 1.4 * same) << "prefill rounds its inputs";
    }
  }
}

TEST_P(PrecisionTest, ABatchGivesEachSequenceItsOwnBits) {
  const auto run = [&](const std::vector<std::vector<std::int32_t>>& prompts, unsigned threads) {
    Bench bench(tiny_model(), sim(), options(GetParam()), threads);
    std::vector<std::vector<float>> logits;
    bench.decode(*make_method("hgca:device_kv=64,block=16,beta=0.5"), prompts, kSteps, {.logits = &logits});
    return logits;
  };
  const std::vector<std::vector<std::int32_t>> prompts = {random_prompt(401, 5), random_prompt(95, 6)};
  const auto together = run(prompts, 2);
  for (std::size_t i = 0; i < 2; ++i) {
    const auto alone = run({prompts[i]}, i == 0 ? 1 : 3);
    for (std::size_t step = 0; step < kSteps; ++step)
      EXPECT_EQ(alone[step], std::vector<float>(together[step].begin() + std::ptrdiff_t(i) * 96,
                                                together[step].begin() + std::ptrdiff_t(i + 1) * 96));
  }
}

TEST(Precision, HalfTheBytesPerToken) {
  Bench whole(tiny_model(), sim(), options(DType::f32)), half(tiny_model(), sim(), options(DType::bf16));
  EXPECT_EQ(whole.engine.kv().shape().token_bytes(), 2 * half.engine.kv().shape().token_bytes());
}

}  // namespace
}  // namespace tandem::testing
