// Profiles of a model whose forward pass ran on a GPU or an emulated one, beside those of the CPU.
#include <cmath>
#include <gtest/gtest.h>

#include "eval/fluxion/samples.h"
#include "eval/heads/heads.h"
#include "eval/heads/query_shift.h"
#include "eval/heads/recall_profile.h"
#include "tests/engine/runtime/tiny.h"
#include "tests/methods/gpu.h"

namespace tandem::testing {
namespace {

using namespace eval;

struct BothBenches {
  Bench cpu{tiny_model()}, gpu;
  BothBenches() : gpu(tiny_model(), testing::gpu()) {}
};

using ProfilesOnGpu = Gpu;

TEST_F(ProfilesOnGpu, HeadsAreThoseOfTheCpu) {
  BothBenches both;
  const std::vector<HeadPrompt> prompts = {{"a", random_prompt(120, 9), 110}};
  const auto profile = [&](Bench& bench) {
    return profile_heads(bench.model, bench.engine, bench.pool, prompts, {.window = 32});
  };
  const HeadProfile expected = profile(both.cpu), found = profile(both.gpu);
  ASSERT_EQ(found.layers.size(), expected.layers.size());
  for (std::size_t layer = 0; layer < found.layers.size(); ++layer) {
    for (std::size_t h = 0; h < found.layers[layer].q_heads.size(); ++h) {
      const HeadStats &a = found.layers[layer].q_heads[h], &b = expected.layers[layer].q_heads[h];
      EXPECT_NEAR(a.sink_mass, b.sink_mass, 1e-5);
      EXPECT_NEAR(a.window_mass, b.window_mass, 1e-5);
      EXPECT_NEAR(a.budget[0][0], b.budget[0][0], 2e-3);  // a token more or less where two weigh nearly the same
      EXPECT_NEAR(a.token_overlap, b.token_overlap, 2e-2);
      EXPECT_NEAR(layer == 0 ? 0 : a.cosine_next, layer == 0 ? 0 : b.cosine_next, 1e-5);
    }
    const InputChange &a = found.layers[layer].input, &b = expected.layers[layer].input;
    EXPECT_NEAR(layer == 0 ? 0 : a.cosine, layer == 0 ? 0 : b.cosine, 1e-5);
  }
}

TEST_F(ProfilesOnGpu, QueryShiftsAreThoseOfTheCpu) {
  BothBenches both;
  ShiftOptions options;
  options.window = 4;
  const std::vector<HeadPrompt> prompts = {{"text", random_prompt(81, 3), 60}};
  const auto profile = [&](Bench& bench) {
    return profile_query_shift(bench.model, bench.engine, bench.pool, prompts, options);
  };
  const ShiftProfile expected = profile(both.cpu), found = profile(both.gpu);
  EXPECT_EQ(found.queries, expected.queries);
  ASSERT_EQ(found.each_prompt.size(), 1u);
  const auto &a = found.each_prompt[0].with_shift, &b = expected.each_prompt[0].with_shift;
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 2e-2);
}

TEST_F(ProfilesOnGpu, FluxionsSamplesAreThoseOfTheCpu) {
  BothBenches both;
  CollectOptions options;
  options.sinks = 16;
  options.window = 16;
  options.decode_steps = 6;
  options.steps = 3;
  const std::vector<std::int32_t> prompt = random_prompt(140, 4);
  const auto samples = [&](Bench& bench) { return collect_samples(bench.engine, bench.pool, "a", prompt, 0, options); };
  const FluxionSamples expected = samples(both.cpu), found = samples(both.gpu);
  ASSERT_EQ(found.features.size(), expected.features.size());
  ASSERT_GT(found.features.size(), 0u);
  for (std::size_t i = 0; i < found.features.size(); ++i)
    EXPECT_NEAR(found.features[i], expected.features[i], 1e-3 * (1 + std::abs(expected.features[i])));
  // Labels count tokens: one more or less where an error is all but what is enough.
  ASSERT_EQ(found.budgets.size(), expected.budgets.size());
  for (std::size_t i = 0; i < found.budgets.size(); ++i) EXPECT_NEAR(found.budgets[i], expected.budgets[i], 0.03);
  EXPECT_EQ(found.streaming, expected.streaming);
}

TEST_F(ProfilesOnGpu, RecallsAreThoseOfTheCpu) {
  BothBenches both;
  RecallOptions options;
  options.method = "scoutattention:budget=64,block=16,sinks=16";
  options.budget = 64;
  options.steps = 6;
  options.threshold = 0.3;
  const std::vector<HeadPrompt> prompts = {{"a", random_prompt(200, 3), 199}};
  const RecallProfile expected = profile_recall(both.cpu.engine, prompts, options);
  const RecallProfile found = profile_recall(both.gpu.engine, prompts, options);
  EXPECT_EQ(found.intervals, expected.intervals);
  ASSERT_EQ(found.without.size(), expected.without.size());
  for (std::size_t layer = 0; layer < found.without.size(); ++layer)
    for (std::size_t step = 0; step < found.without[layer].size(); ++step)
      EXPECT_NEAR(found.without[layer][step], expected.without[layer][step], 1e-6);
}

}  // namespace
}  // namespace tandem::testing
