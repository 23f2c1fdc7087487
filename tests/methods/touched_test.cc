// Bytes that a decode step touches of its context, by hand, and how they follow a method's budget.
#include <gtest/gtest.h>
#include <map>

#include "methods/registry.h"
#include "tests/engine/runtime/tiny.h"

namespace tandem::testing {
namespace {

constexpr std::uint32_t kSteps = 4;

/// Of decode steps, all of them.
std::uint64_t touched(Bench& bench, const std::string& spec, std::uint32_t prompt, std::uint32_t rows = 1) {
  const std::vector<std::vector<std::int32_t>> prompts(rows, random_prompt(prompt, 5));
  const std::vector<std::vector<std::int32_t>> fed(rows, random_prompt(kSteps, 6));
  DecodeOptions options;
  options.forced = fed;
  const DecodeResult result = bench.decode(*make_method(spec), prompts, kSteps, options);
  std::uint64_t sum = 0;
  for (const StepIdle& step : result.idle.steps)
    if (step.step != Device::kSetupStep) sum += step.cost.touched;
  return sum;
}

TEST(Touched, OfFullAttentionIsItsKvWithQueriesAndOutputs) {
  Bench bench(tiny_model());
  const KvShape& kv = bench.engine.kv().shape();
  const std::uint64_t queries = 2 * 4 * 16 * sizeof(float);  // and outputs, a layer and row
  for (const std::uint32_t rows : {1u, 3u}) {
    std::uint64_t expected = 0;
    for (std::uint32_t step = 0; step < kSteps; ++step)
      expected += rows * ((100 + step) * kv.token_bytes() + kv.layers * queries);
    EXPECT_EQ(touched(bench, "full", 100, rows), expected) << rows;
  }
}

TEST(Touched, WhereKvLiesChangesLittleAndCopiesNothing) {
  Bench bench(tiny_model());
  const std::uint64_t full = touched(bench, "full", 400);
  EXPECT_EQ(touched(bench, "full-offload", 400), full) << "what streams to the device is touched there, once";
  // Partial results of the host and their merge.
  EXPECT_GE(touched(bench, "full-host", 400), full);
  EXPECT_LE(touched(bench, "full-host", 400), full + kSteps * 2 * 8 * 4 * (16 + 1) * sizeof(float));
}

TEST(Touched, ChoosingCountsWhatIsLookedAt) {
  Bench bench(tiny_model());
  const std::uint64_t full = touched(bench, "full", 800);
  // Every key is scored, whatever the budget; by asyncspade those of whole pages.
  EXPECT_GT(touched(bench, "tova:budget=16", 800), full / 2);
  EXPECT_GT(touched(bench, "asyncspade:budget=16", 800), full * 12 / 25);
  EXPECT_GT(touched(bench, "quest:budget=800", 800), full) << "digests beside everything";
  EXPECT_LT(touched(bench, "quest:budget=64", 800), full / 3);
}

// Fluxion's tasks on the device read the link while they attend: a copy by its kind, and nothing that is only copied.
TEST(Touched, AttendingOverTheLinkCounts) {
  Bench bench(tiny_model());
  const std::string fluxion = "fluxion:bgt=0.3,slope=0,stage=fixed16,policy=";
  const auto host = double(touched(bench, fluxion + "cpu-only", 1200)),
             shared = double(touched(bench, fluxion + "priority", 1200));
  EXPECT_NEAR(shared / host, 1, 0.1);
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
