// Plans beside published figures (eval/reproduce/published/long_context_serving.json, of Llama 3 70B in FP16) and
// beside hand-made ones.
#include "eval/predict/plan.h"

#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>
#include <nlohmann/json.hpp>

#include "engine/common/json.h"

namespace tandem::eval {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr double kUnknown = std::numeric_limits<double>::infinity();

Plan plan_of(const PlanMemory& memory, const PlanOptions& options, const char* model = "llama-3.1-70b") {
  return make_plan(load_shape(model), {memory}, options);
}

TEST(Plan, HasThePublishedSizesAndTimes) {
  PlanOptions options;
  options.contexts = {131072};
  options.batches = {1};
  const std::pair<std::uint32_t, double> published[] = {
      {16, 0.164}, {32, 0.328}, {64, 0.655}, {128, 1.31}, {256, 2.62}};
  for (const auto& [tokens, ms] : published) {
    options.block_tokens = tokens;
    const Plan plan = plan_of({"", "", 1e9, kUnknown, 32e9}, options);
    EXPECT_NEAR(plan.machines[0].block_ms, ms, 0.005 * ms) << tokens;
    EXPECT_EQ(plan.block_bytes, tokens * std::uint64_t{83886080} / 256);
    // 42.9 GB by the article's formula, where its table prints 5.24 (its erratum).
    EXPECT_NEAR(plan.request_bytes[0], 42.9e9, 0.05e9);
    if (tokens == 32) {  // the article takes 10 MB for a block: 320
      EXPECT_EQ(plan.machines[0].blocks_per_step, 305u);
    }
  }
}

TEST(Plan, CountsWholeBlocks) {
  PlanOptions options;
  options.block_tokens = 64;
  options.contexts = {64, 65, 1000};
  options.batches = {1, 3};
  options.step_ms = 10;
  const double block = 2.0 * 16 * 8 * 64 * 64 * 2;  // llama-3.2-1b: 16 layers, 8 KV heads of 64
  const Plan plan =
      plan_of({"one", "a machine", 20.9 * block, 31 * block, 2.5 * block * 1e3 / 10}, options, "llama-3.2-1b");
  EXPECT_EQ(double(plan.block_bytes), block);
  EXPECT_EQ(plan.machines[0].device_blocks, 20u);
  EXPECT_EQ(plan.machines[0].blocks_per_step, 2u);
  ASSERT_EQ(plan.machines[0].rows.size(), 3u);
  EXPECT_EQ(plan.machines[0].rows[0].on_device, 20u);
  EXPECT_EQ(plan.machines[0].rows[1].on_device, 10u);  // two blocks each
  EXPECT_EQ(plan.machines[0].rows[2].on_device, 1u);   // sixteen
  EXPECT_EQ(plan.machines[0].rows[2].on_host, 1u);
  ASSERT_EQ(plan.machines[0].cells.size(), 6u);
  EXPECT_EQ(plan.machines[0].cells[4].offloaded, 0u);  // 16 of 20
  EXPECT_EQ(plan.machines[0].cells[5].blocks, 48u);
  EXPECT_EQ(plan.machines[0].cells[5].offloaded, 28u);
  EXPECT_NEAR(plan.machines[0].cells[5].restore_ms, 28 * 4.0, 1e-9);
  EXPECT_TRUE(plan.machines[0].cells[5].host_fits);
  const Plan small = plan_of({"one", "a machine", 20.9 * block, 27 * block, 1e9}, options, "llama-3.2-1b");
  EXPECT_FALSE(small.machines[0].cells[5].host_fits);
  EXPECT_THAT(plan_text(small, true), HasSubstr("too much"));
}

TEST(Plan, AMachineWithoutRoomHoldsNothing) {
  PlanOptions options;
  options.contexts = {1024};
  options.batches = {2};
  const Plan plan = plan_of({"small", "a small machine", -5e9, kUnknown, 1e9}, options);
  EXPECT_EQ(plan.machines[0].device_blocks, 0u);
  EXPECT_THAT(plan.machines[0].rows, IsEmpty());
  EXPECT_THAT(plan_text(plan, false), AllOf(HasSubstr("5.00 GB short: nothing is left"), Not(HasSubstr("Requests")),
                                            Not(HasSubstr("KV beyond device memory"))));
  const auto json = parse_json(plan_json(plan), "JSON");
  EXPECT_FALSE(json.at("machines")[0].at("holds_weights"));
  EXPECT_FALSE(json.at("machines")[0].contains("host_kv_bytes"));
  EXPECT_TRUE(json.at("machines")[0].at("batches").empty());
}

TEST(Plan, MachinesStandSideBySideAsEachAlone) {
  PlanOptions options;
  options.contexts = {1024, 4096};
  options.batches = {1, 64};
  const std::vector<PlanMemory> memories = {
      {"large", "", 20e9, 40e9, 32e9}, {"small", "", -1e9, kUnknown, 16e9}, {"medium", "", 9e9, kUnknown, 64e9}};
  const Plan all = make_plan(load_shape("llama-3.1-8b"), memories, options);
  const auto together = parse_json(plan_json(all), "JSON");
  ASSERT_EQ(all.machines.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    const auto alone = parse_json(plan_json(plan_of(memories[i], options, "llama-3.1-8b")), "JSON");
    EXPECT_EQ(together.at("machines")[i], alone.at("machines")[0]);
  }
  const std::string text = plan_text(all, true);
  EXPECT_THAT(text, AllOf(HasSubstr("| large | 20.00 | 40.00 | 32 | 24384 |"),  // 762 blocks of 4 MiB
                          HasSubstr("| small | - | not known | 16 |"), HasSubstr("-: small cannot hold the weights"),
                          HasSubstr("## KV beyond device memory, batch 64"), HasSubstr("| small | - | - |"),
                          HasSubstr("| medium | 67 | 16 |")));  // 2145 blocks of 32 tokens
}

TEST(Plan, ContextsBeyondTheModelsPositionsAreNamed) {
  PlanOptions options;
  options.contexts = {8192, 262144};
  options.batches = {1};
  EXPECT_THAT(plan_text(plan_of({"one", "a machine", 20e9, kUnknown, 32e9}, options), false),
              HasSubstr("knows 131072 positions, and contexts of 256K are"));
  options.contexts = {131072};
  EXPECT_THAT(plan_text(plan_of({"one", "a machine", 20e9, kUnknown, 32e9}, options), false),
              Not(HasSubstr("positions")));
}

TEST(Plan, FewerBitsTakeFewerBytes) {
  PlanOptions options;
  options.contexts = {1024};
  options.batches = {1};
  const Plan whole = plan_of({"", "", 1e9, kUnknown, 32e9}, options, "llama-3.1-8b");
  options.precision = {4, 8};
  const Plan few = plan_of({"", "", 1e9, kUnknown, 32e9}, options, "llama-3.1-8b");
  EXPECT_EQ(whole.token_bytes, 131072u);  // 2 x 32 layers x 8 heads x 128 x 2
  EXPECT_EQ(few.token_bytes, 65536u);
  EXPECT_EQ(few.weight_bytes, whole.weight_bytes / 4);
  EXPECT_THAT(plan_text(few, false), AllOf(HasSubstr("KV of llama-3.1-8b in 8 bits"),
                                           HasSubstr("Weights in 4 bits: 4.02 GB"), HasSubstr("is not measured here")));
  EXPECT_THAT(plan_text(whole, false), AllOf(HasSubstr("in bf16"), Not(HasSubstr("measured here"))));
}

}  // namespace
}  // namespace tandem::eval
