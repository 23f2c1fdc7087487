// Fluxion's tasks on a GPU or an emulated one: heads that need different things, its predictor, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/common/error.h"
#include "engine/device/launch_context.h"
#include "methods/registry.h"
#include "tests/engine/model/model_folder.h"
#include "tests/methods/fluxion/random_heads.h"
#include "tests/methods/fluxion/tiny_predictor.h"
#include "tests/methods/gpu.h"
#include "tests/methods/logits_difference.h"

namespace tandem::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

const std::vector<std::vector<std::int32_t>> kFluxionPrompts = {random_prompt(160, 1), random_prompt(30, 2),
                                                                random_prompt(96, 3)};

struct FluxionOut {
  Logits logits;
  DecodeResult result;
};

/// A device with the prompts.
class Prefilled {
 public:
  explicit Prefilled(std::unique_ptr<Device> device) : bench_(tiny_model(), std::move(device), {}, 4) {
    for (const auto& prompt : kFluxionPrompts) prefixes_.push_back(bench_.engine.prefill(prompt));
  }
  FluxionOut decode(Method& method, std::uint32_t steps) {
    std::vector<DecodeRequest> requests;
    std::vector<std::vector<std::int32_t>> forced;
    for (std::uint32_t i = 0; i < kFluxionPrompts.size(); ++i) {
      requests.push_back({prefixes_[i].get(), steps});
      forced.push_back(random_prompt(steps, 11 + i));
    }
    FluxionOut out;
    out.result = bench_.engine.decode(method, requests, {.logits = &out.logits, .forced = forced});
    return out;
  }

 private:
  Bench bench_;
  std::vector<std::unique_ptr<Prefix>> prefixes_;
};

using FluxionOnGpu = Gpu;

std::uint64_t sum(const std::uint64_t (&by_side)[2]) {
  return by_side[0] + by_side[1];
}

/// Tasks, whoever took them, and logits.
void expect_same(const FluxionOut& found, const FluxionOut& expected) {
  EXPECT_TRUE(logits_agree(found.logits, expected.logits, kFluxionPrompts.size(), 1e-4));
  for (std::size_t i = 0; i < kFluxionPrompts.size(); ++i) {
    const DecodedSequence &f = found.result.sequences[i], &e = expected.result.sequences[i];
    EXPECT_EQ(sum(f.tasks), sum(e.tasks)) << i;
    EXPECT_EQ(sum(f.attended), sum(e.attended)) << i;
    for (int side = 0; side < 2; ++side) EXPECT_EQ(f.peak_kv_bytes[side], e.peak_kv_bytes[side]) << i;
  }
}

std::uint64_t tasks_of(const FluxionOut& out, Side side) {
  std::uint64_t tasks = 0;
  for (const DecodedSequence& s : out.result.sequences) tasks += s.tasks[static_cast<int>(side)];
  return tasks;
}

Cost total(const Trace& trace, std::string_view name) {
  Cost sum;
  for (const TraceRecord& record : trace.records) {
    if (record.name != name) continue;
    EXPECT_FALSE(record.cost.upper_bound) << name;
    sum.h2d += record.cost.h2d;
    sum.flops += record.cost.flops;
    sum.dram += record.cost.dram;
  }
  return sum;
}

TEST_F(FluxionOnGpu, HeadsThatNeedDifferentThingsAttendThem) {
  Prefilled on_gpu(gpu(4)), simulated(sim());
  for (const std::string spec : {"fluxion:sinks=16,window=32", "fluxion:sinks=0,window=1,stage=dynamic,workers=3",
                                 "fluxion:sinks=16,window=32,guard=yes,cpu_share=0.3"}) {
    SCOPED_TRACE(spec);
    expect_same(on_gpu.decode(*with_random_heads(spec), 5), simulated.decode(*with_random_heads(spec), 5));
  }
}

TEST_F(FluxionOnGpu, WhatSpillsIsAttendedOnEitherSide) {
  const std::string spec = "fluxion:sinks=16,window=1,spill=1";
  Prefilled on_gpu(gpu(4)), simulated(sim());
  const FluxionOut found = on_gpu.decode(*with_random_heads(spec), 22),
                   all = simulated.decode(*with_random_heads(spec), 22);
  expect_same(found, all);
  const FluxionOut before = on_gpu.decode(*with_random_heads(spec), 3);
  constexpr int kHost = static_cast<int>(Tier::host);
  EXPECT_GT(found.result.sequences[0].peak_kv_bytes[kHost], before.result.sequences[0].peak_kv_bytes[kHost]);
}

// Where no side may choose, what each moves is known.
TEST_F(FluxionOnGpu, BytesOfTasksAreThoseThatMoved) {
  Prefilled on_gpu(gpu(4)), simulated(sim());
  for (const std::string policy : {"cpu-only", "uniform,cpu_share=0.01", "uniform,cpu_share=0.5"}) {
    const std::string spec = "fluxion:sinks=16,window=32,policy=" + policy;
    SCOPED_TRACE(spec);
    const FluxionOut found = on_gpu.decode(*with_random_heads(spec), 4),
                     expected = simulated.decode(*with_random_heads(spec), 4);
    expect_same(found, expected);
    for (const Side side : {Side::device, Side::host}) EXPECT_EQ(tasks_of(found, side), tasks_of(expected, side));
    for (const char* name : {"attend over the link", "host partials to device"}) {
      const Cost f = total(found.result.trace, name), e = total(expected.result.trace, name);
      EXPECT_EQ(f.h2d, e.h2d) << name;
      EXPECT_EQ(f.flops, e.flops) << name;
    }
    EXPECT_EQ(tasks_of(found, Side::host) > 0, policy != "uniform,cpu_share=0.01");
    EXPECT_EQ(tasks_of(found, Side::device) > 0, policy != "cpu-only");
  }
}

// Tasks that either may take and one side takes: no task of the other one's is merged in its place.
TEST_F(FluxionOnGpu, AGuardLeavesTasksToTheFasterSide) {
  Prefilled on_gpu(gpu(4)), simulated(sim());
  for (const bool host : {false, true}) {
    const std::string spec =
        std::string("fluxion:sinks=16,window=32,guard=yes,cpu_share=") + (host ? "0.999" : "0.001");
    SCOPED_TRACE(spec);
    const FluxionOut found = on_gpu.decode(*with_random_heads(spec), 5);
    expect_same(found, simulated.decode(*with_random_heads(spec), 5));
    EXPECT_GT(tasks_of(found, host ? Side::host : Side::device), 0u);
    EXPECT_EQ(tasks_of(found, host ? Side::device : Side::host), 0u);
  }
}

// Of a row that has nothing on the host between two that have.
TEST_F(FluxionOnGpu, ThePredictorSaysWhatItSaysOnTheCpu) {
  const TemporaryFolder folder;
  const std::string spec = "fluxion:sinks=16,window=32,bgt=0.1,heads=" + write_predictor(folder).string();
  Prefilled on_gpu(gpu(4)), simulated(sim());
  const FluxionOut found = on_gpu.decode(*make_method(spec), 5), expected = simulated.decode(*make_method(spec), 5);
  expect_same(found, expected);
  for (const std::size_t i : {0, 2}) EXPECT_GT(sum(found.result.sequences[i].tasks), 0u);
  // Its budgets are its own: fixed ones of the same kind attend something else.
  const FluxionOut fixed = simulated.decode(*make_method("fluxion:sinks=16,window=32,bgt=0.1"), 5);
  EXPECT_NE(sum(fixed.result.sequences[0].attended), sum(found.result.sequences[0].attended));
}

TEST_F(FluxionOnGpu, HeadsThatAreMeasuredOrDrawnAreRefused) {
  for (const std::string heads : {"oracle", "published"}) {
    Bench bench(tiny_model(), make_cuda_device());
    const auto method = make_method("fluxion:sinks=0,window=1,heads=" + heads);
    EXPECT_THAT([&] { bench.decode(*method, {kFluxionPrompts[2]}, 2); },
                ThrowsMessage<InputError>(HasSubstr("option 'heads': what is measured in the run, or drawn")));
    EXPECT_EQ(bench.decode(*make_method("full"), {kFluxionPrompts[1]}, 2).sequences[0].tokens.size(), 2u);
  }
}

}  // namespace
}  // namespace tandem::testing
