// Sweeps: each point is what predict() gives alone; memory is filled to the last sequence; files go on.
#include "eval/predict/sweep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/common/error.h"
#include "engine/common/json.h"
#include "eval/predict/row.h"
#include "tests/eval/predict/sweeps.h"

namespace tandem::eval {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(Sweep, EveryPointIsASimulationOfItsOwn) {
  const SweepOptions options = a_sweep();
  const Sweep sweep = simulate_sweep(load_shape(kShape), a_workload(), options);
  EXPECT_TRUE(sweep.complete());
  ASSERT_EQ(sweep.points.size(), 24u);
  std::size_t at = 0;
  for (const HardwareProfile& hardware : options.hardware) {
    for (const std::uint32_t batch : options.batches) {
      for (const std::uint32_t context : options.contexts) {
        PredictionOptions alone;
        alone.methods = options.methods;
        alone.batch = batch;
        alone.context = context;
        alone.steps = options.steps;
        alone.ranges = true;
        const Prediction expected = predict(load_shape(kShape), hardware, a_workload(), alone);
        for (const PredictedRow& row : expected.rows) {
          const SweepPoint& point = sweep.points[at++];
          EXPECT_EQ(point.hardware, hardware.name);
          EXPECT_EQ(point.method, row.method);
          EXPECT_EQ(point.sequences, batch);
          const auto fields = [](auto& out, const PredictedRow& of) { visit_row(out, of); };
          EXPECT_EQ(written(point.row, fields), written(row, fields))
              << hardware.name << " " << batch << " x " << context;
          EXPECT_NEAR(point.tokens_per_second(), 1e3 * batch / row.step_ms, 1e-9);
        }
      }
    }
  }
  SweepOptions one_thread = options;
  one_thread.threads = 1;
  EXPECT_EQ(json_of(simulate_sweep(load_shape(kShape), a_workload(), one_thread)), json_of(sweep));
}

TEST(Sweep, SaysWhichMethodsLoseNothing) {
  const Sweep sweep = simulate_sweep(load_shape(kShape), a_workload(), a_sweep());
  for (const SweepPoint& point : sweep.points) EXPECT_EQ(point.lossless, point.method == "full");
}

TEST(Sweep, SaysWhichBudgetsAreNone) {
  SweepOptions options = a_sweep();
  options.methods = {"full", "quest:budget=528", "quest:budget=64"};
  options.hardware.pop_back();
  options.batches = {1};
  const Sweep sweep = simulate_sweep(load_shape(kShape), a_workload(), options);
  EXPECT_THAT(sweep_notes(sweep),
              Contains(StartsWith("Attends everything: quest:budget=528 at 512. A budget for the")));
}

TEST(Sweep, MemoryIsFilledToTheLastSequence) {
  SweepOptions options = a_sweep();
  options.methods = {"full", "full-host", "hgca:device_kv=0.25,block=16"};
  options.batches = {kAsManyAsFit};
  options.contexts = {1000};
  options.hardware.resize(1);
  const Model shape = load_shape(kShape);
  // Room for 3.5 whole sequences on the device, 5.5 on the host, by hand: pages of 16 tokens, K and V in bf16.
  const double sequence = 64.0 * 16 * 2 * 8 * 64 * 16 * 2;
  options.hardware[0].device.memory_gb = (double(shape.weights.bytes()) + 3.5 * sequence) * 1e-9 / 0.95;
  options.hardware[0].host.memory_gb = 5.5 * sequence * 1e-9 / 0.95;
  const Sweep sweep = simulate_sweep(load_shape(kShape), a_workload(), options);
  ASSERT_EQ(sweep.points.size(), 3u);
  EXPECT_EQ(sweep.points[0].sequences, 3u);
  EXPECT_EQ(sweep.points[1].sequences, 5u);
  for (const SweepPoint& point : sweep.points) {
    EXPECT_EQ(point.row.refused, "");
    PredictionOptions target;
    target.methods = {point.method};
    target.context = 1000;
    target.steps = options.steps;
    target.batch = point.sequences;
    EXPECT_EQ(predict(shape, options.hardware[0], a_workload(), target).rows[0].step_ms, point.row.step_ms);
    target.batch = point.sequences + 1;
    EXPECT_TRUE(predict(shape, options.hardware[0], a_workload(), target).rows[0].too_large) << point.method;
  }
  options.most_sequences = 2;
  EXPECT_EQ(simulate_sweep(load_shape(kShape), a_workload(), options).points[0].sequences, 2u);
  options.hardware[0].device.memory_gb = (double(shape.weights.bytes()) + 0.5 * sequence) * 1e-9 / 0.95;
  const SweepPoint none = simulate_sweep(load_shape(kShape), a_workload(), options).points[0];
  EXPECT_TRUE(none.row.too_large);
}

TEST(Sweep, AsManyAsKeepToATimePerToken) {
  SweepOptions options = a_sweep();
  options.hardware.resize(1);
  options.contexts = {1024};
  options.batches = {kAsManyAsFit};
  options.most_sequences = 10;
  options.methods.pop_back();
  const Sweep free = simulate_sweep(load_shape(kShape), a_workload(), options);
  for (const std::string& method : options.methods) {
    const SweepPoint most = *free.find("fluxion-a100", kAsManyAsFit, 1024, method);
    ASSERT_EQ(most.sequences, 10u);
    SweepOptions one_method = options;
    one_method.methods = {method};
    const auto within = [&](double ms) {
      one_method.tpot_ms = ms;
      return simulate_sweep(load_shape(kShape), a_workload(), one_method).points.at(0);
    };
    const auto step_of = [&](std::uint32_t sequences) {
      SweepOptions fixed = one_method;
      fixed.batches = {sequences};
      return simulate_sweep(load_shape(kShape), a_workload(), fixed).points.at(0).row.step_ms;
    };
    const double one = step_of(1), all = most.row.step_ms;
    ASSERT_LT(one, all);
    for (const double share : {0.2, 0.7}) {
      const double limit = one + share * (all - one);
      const SweepPoint point = within(limit);
      ASSERT_GE(point.sequences, 1u);
      EXPECT_EQ(point.row.step_ms, step_of(point.sequences)) << method;
      EXPECT_LE(point.row.step_ms, limit) << method;
      EXPECT_GT(step_of(point.sequences + 1), limit) << method << ": one more fits, too";
    }
    EXPECT_EQ(within(all).sequences, 10u);
    EXPECT_EQ(within(one).sequences, 1u);
    const SweepPoint slow = within(0.9 * one);
    EXPECT_TRUE(slow.row.too_slow);
    EXPECT_EQ(slow.sequences, 0u);
    EXPECT_THAT(slow.row.refused, HasSubstr("a step of one sequence takes"));
  }
  options.tpot_ms = 0.9 * free.points[0].row.step_ms;
  const Sweep sweep = simulate_sweep(load_shape(kShape), a_workload(), options);
  EXPECT_THAT(sweep_text(sweep, false), AllOf(HasSubstr("as many as fit within"), HasSubstr("(--tpot)")));
  const SweepFile file = parse_sweep(json_of(sweep), "sweep.json");
  EXPECT_EQ(sweep_json(file.sweep, file.command, file.program), json_of(sweep));
  EXPECT_THAT(refusal(json_of(free), settings_of(options)), HasSubstr("its tpot_ms is null"));
}

/// hgca's second sequence needs a little more than its first, so that the estimate is two and one fits.
TEST(Sweep, WhereTheEstimateIsTooLargeTheLastThatFitsIsShown) {
  SweepOptions options = a_sweep();
  options.methods = {"hgca:device_kv=0.25,block=16"};
  options.contexts = {1000};
  options.steps = 8;
  options.hardware.resize(1);
  options.batches = {1, 2};
  const auto bytes = simulate_sweep(load_shape(kShape), a_workload(), options);
  const double one = double(bytes.points[0].row.host_kv_bytes), two = double(bytes.points[1].row.host_kv_bytes);
  ASSERT_GT(two, 2 * one);
  options.hardware[0].host.memory_gb = (one + two / 2) / 0.95 * 1e-9;
  options.batches = {kAsManyAsFit};
  const SweepPoint most = simulate_sweep(load_shape(kShape), a_workload(), options).points[0];
  EXPECT_EQ(most.sequences, 1u);
  EXPECT_EQ(most.row.refused, "");
  EXPECT_EQ(most.row.step_ms, bytes.points[0].row.step_ms);
}

TEST(Sweep, WhatTheMachineRefusesIsAPoint) {
  SweepOptions options = a_sweep();
  options.methods = {"full"};
  options.contexts = {512, 1u << 24};
  options.batches = {1024};
  options.hardware.resize(1);
  const Sweep sweep = simulate_sweep(load_shape(kShape), a_workload(), options);
  EXPECT_EQ(sweep.points.at(0).row.refused, "");
  EXPECT_THAT(sweep.points.at(1).row.refused, HasSubstr("refuses"));
}

TEST(Sweep, HostMemoryIsALimitWhereTheProfileKnowsIt) {
  PredictionOptions target;
  target.methods = {"full-host"};
  target.context = 1000;
  target.steps = 4;
  HardwareProfile hardware = load_profile("fluxion-a100");
  hardware.host.memory_gb = 0.03;  // of 33.6 MB
  const PredictedRow row = predict(load_shape(kShape), hardware, a_workload(), target).rows[0];
  EXPECT_TRUE(row.too_large);
  EXPECT_THAT(row.refused, HasSubstr("of host memory, and 'fluxion-a100' has"));
  hardware.host.memory_gb = 0;
  EXPECT_EQ(predict(load_shape(kShape), hardware, a_workload(), target).rows[0].refused, "");
}

TEST(Sweep, AMachineThatCannotHoldTheWeightsIsAPoint) {
  SweepOptions options = a_sweep();
  options.hardware[1].device.memory_gb = 2;
  const Sweep sweep = simulate_sweep(load_shape(kShape), a_workload(), options);
  for (const SweepPoint& point : sweep.points) {
    EXPECT_EQ(point.row.too_large, point.hardware == "h200");
    if (!point.row.too_large) continue;
    EXPECT_THAT(point.row.refused, HasSubstr("the weights take 2.5 GB"));
  }
}

TEST(Sweep, ContextsBeyondAModelsPositionsAreCosted) {
  SweepOptions options = a_sweep();
  options.methods = {"streaming"};
  options.contexts = {4096, 8192};
  options.batches = {1};
  options.hardware.resize(1);
  const Sweep sweep = simulate_sweep(load_shape("llama-2-7b"), a_workload(), options);
  EXPECT_EQ(sweep.points[1].row.refused, "");
  EXPECT_THAT(sweep_text(sweep, false), HasSubstr("llama-2-7b has 4096 positions: contexts of 4K, 8K are costed"));
}

TEST(Sweep, KnownPointsAreKept) {
  SweepOptions few = a_sweep();
  few.contexts = {1024};
  few.hardware.resize(1);
  Sweep first = simulate_sweep(load_shape(kShape), a_workload(), few);
  const Sweep whole = simulate_sweep(load_shape(kShape), a_workload(), a_sweep());
  const auto known = known_points(json_of(first), "sweep.json", settings_of(a_sweep()), kProgram);
  EXPECT_EQ(known.size(), 6u);
  EXPECT_EQ(json_of(simulate_sweep(load_shape(kShape), a_workload(), a_sweep(), known)), json_of(whole));
  first.points[0].row.step_ms = 12345;
  const Sweep marked = simulate_sweep(load_shape(kShape), a_workload(), a_sweep(), first.points);
  EXPECT_EQ(marked.find("fluxion-a100", 2, 1024, "full")->row.step_ms, 12345) << "it was not simulated again";
}

TEST(Sweep, AnInterruptionKeepsWhatIsFinished) {
  SweepOptions options = a_sweep();
  options.threads = 1;
  std::uint64_t finished = 0;
  options.progress = [&](std::uint64_t done, std::uint64_t, const std::string&) { finished = done; };
  options.interrupted = [&] { return finished == 5; };
  const Sweep part = simulate_sweep(load_shape(kShape), a_workload(), options);
  EXPECT_FALSE(part.complete());
  EXPECT_EQ(part.points.size(), 5u);
  EXPECT_THAT(json_of(part), HasSubstr("\"complete\": false"));
  EXPECT_THAT(sweep_text(part, false), AllOf(HasSubstr("Not finished: 5 points"), HasSubstr("not run")));
  options.interrupted = {};
  const auto known = known_points(json_of(part), "sweep.json", settings_of(options), kProgram);
  EXPECT_EQ(json_of(simulate_sweep(load_shape(kShape), a_workload(), options, known)),
            json_of(simulate_sweep(load_shape(kShape), a_workload(), a_sweep())));
}

}  // namespace
}  // namespace tandem::eval
