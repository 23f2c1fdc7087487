// What an observer is shown of a GPU or an emulated one, beside what it is shown of the simulated device.
#include <cstdlib>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdexcept>

#include "engine/runtime/observer.h"
#include "methods/registry.h"
#include "tests/engine/runtime/tiny.h"
#include "tests/methods/gpu.h"

namespace tandem::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

/// All that it was shown, in order.
class Seen : public ForwardObserver {
 public:
  explicit Seen(const ModelConfig& config) : config_(config) {}
  void qkv_done(const QkvRows& rows) override {
    note(rows.layer, rows.positions);
    const std::size_t n = rows.positions.size(), kv = std::size_t{config_.kv_heads} * config_.head_dim;
    keep(rows.x, n * config_.hidden);
    keep(rows.q, n * config_.q_heads * config_.head_dim);
    keep(rows.k, n * kv);
    keep(rows.v, n * kv);
  }
  void query_predicted(const PredictedRows& rows) override {
    ++predicted;
    note(1000 + rows.layer, rows.positions);
    keep(rows.q, rows.positions.size() * config_.q_heads * config_.head_dim);
  }
  std::vector<std::uint32_t> where;  // layer, positions
  std::vector<float> values;
  std::size_t predicted = 0;

 private:
  void note(std::uint32_t layer, std::span<const std::uint32_t> positions) {
    where.push_back(layer);
    where.insert(where.end(), positions.begin(), positions.end());
  }
  void keep(const float* from, std::size_t count) { values.insert(values.end(), from, from + count); }
  const ModelConfig& config_;
};

using ObservedOnGpu = Gpu;

// Chunks of 32 and a shorter one, then steps of two sequences; in f32, where both choose the same blocks, with queries
// that are predicted for the next layer.
TEST_F(ObservedOnGpu, IsWhatTheSimulatedDeviceShows) {
  for (const DType precision : {DType::f32, DType::bf16}) {
    EngineOptions options;
    options.prefill_chunk = 32;
    options.precision = precision;
    Bench expected_bench(tiny_model(true, 3), sim(), options), bench(tiny_model(true, 3), gpu(), options);
    std::vector<Seen> seen;
    for (Bench* each : {&expected_bench, &bench}) {
      Seen& own = seen.emplace_back(each->model.config);
      each->engine.observe(&own);
      const std::vector<std::vector<std::int32_t>> prompts = {random_prompt(75, 1), random_prompt(20, 2)},
                                                   forced = {random_prompt(5, 3), random_prompt(5, 4)};
      const auto method =
          make_method(precision == DType::f32 ? "scoutattention:budget=48,block=16,sinks=16,recall=3" : "full");
      each->decode(*method, prompts, 5, {.forced = forced});
      each->engine.observe(nullptr);
    }
    EXPECT_EQ(seen[1].where, seen[0].where);
    EXPECT_EQ(seen[1].predicted > 0, precision == DType::f32);
    ASSERT_EQ(seen[1].values.size(), seen[0].values.size());
    double worst = 0;
    for (std::size_t i = 0; i < seen[0].values.size(); ++i)
      worst = std::max(worst, std::abs(double{seen[1].values[i]} - seen[0].values[i]));
    EXPECT_LT(worst, precision == DType::f32 ? 2e-5 : 8e-2);
    std::printf("largest difference %.2g\n", worst);
  }
}

TEST_F(ObservedOnGpu, ResultsDoNotChangeAndItEnds) {
  Bench bench(tiny_model(), gpu());
  const std::vector<std::vector<std::int32_t>> prompts = {random_prompt(60, 5)};
  const auto method = make_method("full");
  const auto tokens = [&] { return bench.decode(*method, prompts, 8).sequences[0].tokens; };
  const std::vector<std::int32_t> before = tokens();
  Seen seen(bench.model.config);
  bench.engine.observe(&seen);
  EXPECT_EQ(tokens(), before);
  bench.engine.observe(nullptr);
  const std::size_t shown = seen.values.size();
  EXPECT_GT(shown, 0u);
  EXPECT_EQ(tokens(), before);
  EXPECT_EQ(seen.values.size(), shown);
}

TEST_F(ObservedOnGpu, WhatItThrowsEndsTheRunAndNothingElse) {
  class Fails final : public ForwardObserver {
   public:
    void qkv_done(const QkvRows& rows) override {
      if (rows.positions.back() == at && rows.layer == 1) throw std::runtime_error("seen enough");
    }
    std::uint32_t at = 0;
  };
  Bench bench(tiny_model(), gpu());
  const std::vector<std::vector<std::int32_t>> prompts = {random_prompt(60, 5)};
  const auto method = make_method("full");
  const auto before = bench.decode(*method, prompts, 4).sequences[0].tokens;
  for (const std::uint32_t at : {58u, 60u}) {  // the prompt's end; the second step
    Fails fails;
    fails.at = at;
    bench.engine.observe(&fails);
    EXPECT_THAT([&] { bench.decode(*method, prompts, 4); }, ThrowsMessage<std::exception>(HasSubstr("seen enough")));
    bench.engine.observe(nullptr);
    EXPECT_EQ(bench.decode(*method, prompts, 4).sequences[0].tokens, before);
  }
}

}  // namespace
}  // namespace tandem::testing
