// Bytes that a decode step touches of its context, by hand, and how they follow a method's budget.
#include <gtest/gtest.h>
#include <map>

#include "methods/registry.h"
#include "tests/engine/runtime/tiny.h"

namespace tandem::testing {
namespace {

constexpr std::uint32_t kSteps = 4;

/// What decode steps come to, all together.
CostTotals cost_of(Bench& bench, const std::string& spec, std::uint32_t prompt, std::uint32_t rows = 1) {
  const std::vector<std::vector<std::int32_t>> prompts(rows, random_prompt(prompt, 5));
  const std::vector<std::vector<std::int32_t>> fed(rows, random_prompt(kSteps, 6));
  DecodeOptions options;
  options.forced = fed;
  const DecodeResult result = bench.decode(*make_method(spec), prompts, kSteps, options);
  CostTotals sum;
  for (const StepIdle& step : result.idle.steps)
    if (step.step != Device::kSetupStep) sum.add(step.cost);
  return sum;
}

std::uint64_t touched(Bench& bench, const std::string& spec, std::uint32_t prompt, std::uint32_t rows = 1) {
  return cost_of(bench, spec, prompt, rows).touched;
}

TEST(Touched, OfFullAttentionIsItsKv) {
  Bench bench(tiny_model());
  const std::uint64_t token = bench.engine.kv().shape().token_bytes();
  for (const std::uint32_t rows : {1u, 3u}) {
    std::uint64_t expected = 0;
    for (std::uint32_t step = 0; step < kSteps; ++step) expected += rows * (100 + step) * token;
    EXPECT_EQ(touched(bench, "full", 100, rows), expected) << rows;
  }
}

TEST(Touched, WhereKvLiesChangesNothing) {
  Bench bench(tiny_model());
  const std::uint64_t full = touched(bench, "full", 400);
  EXPECT_EQ(touched(bench, "full-offload", 400), full) << "what streams to the device is touched there, once";
  EXPECT_EQ(touched(bench, "full-host", 400), full);
  // The same blocks, chosen by the same digests, on the CPU or fetched.
  for (const char* options : {"budget=0.1", "budget=0.3,block=32"})
    EXPECT_EQ(touched(bench, std::string("hybrid-fixed:") + options, 800),
              touched(bench, std::string("gpu-fetch:") + options, 800));
  Bench second(tiny_model(), make_sim_device(load_profile("asyncspade-a100"), {}));
  const std::uint64_t stream = touched(second, "asyncspade:budget=64,place=stream", 400);
  EXPECT_EQ(touched(second, "asyncspade:budget=64,place=host", 400), stream);
  EXPECT_EQ(touched(second, "asyncspade:budget=64,place=peer", 400), stream);
}

TEST(Touched, ChoosingCountsWhatIsLookedAt) {
  Bench bench(tiny_model());
  const KvShape& kv = bench.engine.kv().shape();
  // All keys but the newest token's, which is attended anyway, and K and V of what is chosen.
  std::uint64_t expected = 0;
  for (std::uint32_t step = 0; step < kSteps; ++step) expected += (799 + step) * kv.token_bytes() / 2;
  EXPECT_EQ(touched(bench, "tova:budget=16", 800), expected + kSteps * 16 * kv.token_bytes());
  const std::uint64_t full = touched(bench, "full", 800);
  EXPECT_GT(touched(bench, "quest:budget=800", 800), full) << "digests beside everything";
  EXPECT_LT(touched(bench, "quest:budget=64", 800), full / 3);
}

// A KV group's part is attended by either side: over the link digests are read once for four query heads, here once.
TEST(Touched, AttendingOverTheLinkCounts) {
  std::uint64_t simulated = 0;
  for (const bool emulated : {false, true}) {
    Bench bench(tiny_model(), emulated ? make_emu_device() : sim());
    const std::string fluxion = "fluxion:bgt=0.3,slope=0,stage=fixed16,";
    const CostTotals host = cost_of(bench, fluxion + "policy=cpu-only", 1200),
                     shared = cost_of(bench, fluxion + "policy=uniform,cpu_share=0.3", 1200);
    EXPECT_GT(shared.h2d, host.h2d + host.touched / 4) << "the device has taken some";
    EXPECT_EQ(shared.touched, host.touched) << (emulated ? "emu" : "sim");
    if (!emulated) simulated = host.touched;
    EXPECT_EQ(host.touched, simulated) << "of all tasks that a worker took";
  }
}

// An operation that forgets to declare it would make its method look cheaper than others.
TEST(Touched, WhatAttendsOrChoosesDeclaresIt) {
  for (const MethodInfo& info : method_registry()) {
    Bench bench(tiny_model_for(info.name));
    const std::vector<std::vector<std::int32_t>> prompts = {random_prompt(1200, 5)};
    const DecodeResult result = bench.decode(*make_method(info.name), prompts, kSteps);
    std::uint64_t looked_at = 0;
    for (const TraceRecord& r : result.trace.records) {
      const bool looks = r.cost.work == Work::attention || r.cost.work == Work::select;
      if (!looks || r.cost.flops == 0 || r.start < result.trace.steps.front().end) continue;  // none, or set-up
      ++looked_at;
      EXPECT_GT(r.cost.context, 0u) << info.name << ": " << r.name;
      EXPECT_LE(r.cost.context, r.cost.hbm + r.cost.dram + r.cost.h2d) << info.name << ": " << r.name;
    }
    EXPECT_GT(looked_at, 0u) << info.name;
  }
}

// What comparisons at equal bytes rest on: more of the option is no fewer bytes, but for what larger blocks save of an
// index where nearly everything is attended.
TEST(Touched, GrowsWithEveryBudget) {
  for (const MethodInfo& info : method_registry()) {
    for (const BudgetOption& option : info.budget_options) {
      if (!option.turns_touched || option.is == "published" || option.is == "peer") continue;
      Bench bench(tiny_model_for(info.name));
      const std::string where = option.where.empty() ? "" : option.where + "=" + option.is + ",";
      std::uint64_t before = 0;
      const std::map<BudgetOption::Scale, std::vector<const char*>> values = {
          {BudgetOption::Scale::tokens, {"128", "192", "256", "512", "800"}},
          {BudgetOption::Scale::share, {"0.01", "0.05", "0.2", "0.5", "1"}},
          {BudgetOption::Scale::error, {"1", "0.3", "0.1", "0.01", "0.0001"}}};
      for (const char* value : values.at(option.scale)) {
        const std::string spec = info.name + ":" + where + option.option + "=" + value;
        const std::uint64_t now = touched(bench, spec, 800);
        EXPECT_GE(static_cast<double>(now), 0.97 * static_cast<double>(before)) << spec;
        before = now;
      }
    }
  }
}

}  // namespace
}  // namespace tandem::testing
