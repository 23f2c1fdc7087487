// The margins of near ties against what they are about: how far rounding moves the gap of the two best logits. Every
// instruction set of this machine rounds sums in its own way.
#include "engine/runtime/near_tie.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>

#include "engine/kernels/isa.h"
#include "engine/kernels/sampling.h"
#include "methods/registry.h"
#include "tests/engine/runtime/tiny.h"
#include "tests/golden/golden.h"

namespace tandem::testing {
namespace {

constexpr std::uint32_t kForcedSteps = 100;

class NearTieTest : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Types, NearTieTest, ::testing::Values(DType::f32, DType::f16, DType::bf16),
                         [](const auto& param) { return to_string(param.param); });

/// Logits of the embedded model behind the golden's text, of a continuation that is given.
std::vector<std::vector<float>> logits_with(Isa isa, DType precision, const Golden& golden) {
  const ScopedIsa scope(isa);
  const Model model = load_model(golden.model, true);
  const auto device = sim();
  ThreadPool pool(2);
  EngineOptions options;
  options.precision = precision;
  Engine engine(model, *device, pool, options);
  const auto prefix = engine.prefill(golden.tokens);
  const DecodeRequest request{prefix.get(), kForcedSteps};
  const std::vector<std::vector<std::int32_t>> forced = {{golden.tokens.begin() + 100, golden.tokens.begin() + 200}};
  std::vector<std::vector<float>> logits;
  engine.decode(*make_method("full"), {&request, 1}, {.logits = &logits, .forced = forced});
  engine.release(*prefix);
  return logits;
}

TEST_P(NearTieTest, MarginsAreAboveWhatRoundingDoesAndNotFarAbove) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "measures rounding, which a sanitizer does not change, in a minute";
#endif
  const Golden golden = load_golden("embedded");
  const auto reference = logits_with(Isa::baseline, GetParam(), golden);
  std::vector<double> moved;
  double best = 0;
  for (const Isa isa : kIsas) {
    if (isa == Isa::baseline || !isa_supported(isa)) continue;
    const auto logits = logits_with(isa, GetParam(), golden);
    for (std::size_t step = 0; step < kForcedSteps; ++step) {
      const TopTwo top = top_two(reference[step].data(), golden.vocab);
      const double gap = double(logits[step][top.best]) - double(logits[step][top.second]);
      moved.push_back(std::abs(gap - (double(top.best_logit) - double(top.second_logit))));
      best = std::max(best, double(top.best_logit));
    }
  }
  if (moved.empty()) GTEST_SKIP() << "this CPU has one instruction set";
  std::sort(moved.begin(), moved.end());
  const double median = moved[moved.size() / 2], most_steps = moved[moved.size() * 99 / 100];
  std::printf("%s: rounding moves the gap by %.2g (median), %.2g (99 %% of steps), %.2g (most); logits up to %.3g\n",
              to_string(GetParam()), median, most_steps, moved.back(), best);
  const double margin = near_tie_margin(GetParam());
  EXPECT_LT(most_steps, margin);
  EXPECT_GT(median, margin / 200) << "a margin that names steps which rounding does not reach";
}

TEST_P(NearTieTest, StepsBelowTheMarginAreNamed) {
  EngineOptions options;
  options.precision = GetParam();
  Bench bench(tiny_model(), sim(), options);
  std::vector<std::vector<float>> logits;
  const DecodeResult result =
      bench.decode(*make_method("full"), {random_prompt(40, 1), random_prompt(9, 2)}, 60, {.logits = &logits});
  for (std::size_t row = 0; row < 2; ++row) {
    std::vector<std::uint32_t> expected, named;
    for (std::uint32_t step = 0; step < logits.size(); ++step) {
      const TopTwo top = top_two(logits[step].data() + row * 96, 96);
      if (top.best_logit - top.second_logit < near_tie_margin(GetParam())) expected.push_back(step);
    }
    for (const NearTie& tie : result.sequences[row].near_ties) named.push_back(tie.step);
    EXPECT_EQ(named, expected);
    EXPECT_EQ(result.sequences[row].top.size(), logits.size());
    if (GetParam() == DType::bf16) {
      EXPECT_FALSE(named.empty()) << "or this tests nothing";
    }
  }
}

}  // namespace
}  // namespace tandem::testing
