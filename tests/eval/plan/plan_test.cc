// Plans beside published figures (published/long_context_serving.json, of Llama 3 70B in FP16) and beside hand-made
// ones.
#include "eval/plan/plan.h"

#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>
#include <nlohmann/json.hpp>

#include "engine/common/json.h"
#include "engine/model/presets.h"

namespace tandem::eval {
namespace {

using ::testing::HasSubstr;

constexpr double kUnknown = std::numeric_limits<double>::infinity();

Plan plan_of(const PlanMemory& memory, const PlanOptions& options, const char* model = "llama-3.1-70b") {
  return make_plan(model, preset_config(model), memory, options);
}

TEST(Plan, HasThePublishedSizesAndTimes) {
  PlanOptions options;
  options.kv_type = DType::f16;
  options.contexts = {131072};
  options.batches = {1};
  const std::pair<std::uint32_t, double> published[] = {
      {16, 0.164}, {32, 0.328}, {64, 0.655}, {128, 1.31}, {256, 2.62}};
  for (const auto& [tokens, ms] : published) {
    options.block_tokens = tokens;
    const Plan plan = plan_of({"", 1e9, kUnknown, 32e9}, options);
    EXPECT_NEAR(plan.block_ms, ms, 0.005 * ms) << tokens;
    EXPECT_EQ(plan.block_bytes, tokens * std::uint64_t{83886080} / 256);
    // 42.9 GB by the article's formula, where its table prints 5.24 (its erratum).
    EXPECT_NEAR(plan.rows[0].request_bytes, 42.9e9, 0.05e9);
    if (tokens == 32) {  // the article takes 10 MB for a block: 320
      EXPECT_EQ(plan.blocks_per_step, 305u);
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
  const Plan plan = plan_of({"a machine", 20.9 * block, 31 * block, 2.5 * block * 1e3 / 10}, options, "llama-3.2-1b");
  EXPECT_EQ(double(plan.block_bytes), block);
  EXPECT_EQ(plan.device_blocks, 20u);
  EXPECT_EQ(plan.blocks_per_step, 2u);
  ASSERT_EQ(plan.rows.size(), 3u);
  EXPECT_EQ(plan.rows[0].on_device, 20u);
  EXPECT_EQ(plan.rows[1].on_device, 10u);  // two blocks each
  EXPECT_EQ(plan.rows[2].on_device, 1u);   // sixteen
  EXPECT_EQ(plan.rows[2].on_host, 1u);
  ASSERT_EQ(plan.cells.size(), 6u);
  EXPECT_EQ(plan.cells[4].offloaded, 0u);  // 16 of 20
  EXPECT_EQ(plan.cells[5].blocks, 48u);
  EXPECT_EQ(plan.cells[5].offloaded, 28u);
  EXPECT_NEAR(plan.cells[5].restore_ms, 28 * 4.0, 1e-9);
  EXPECT_TRUE(plan.cells[5].host_fits);
  const Plan small = plan_of({"a machine", 20.9 * block, 27 * block, 1e9}, options, "llama-3.2-1b");
  EXPECT_FALSE(small.cells[5].host_fits);
  EXPECT_THAT(plan_text(small, true), HasSubstr("too much"));
}

TEST(Plan, AMachineWithoutRoomHoldsNothing) {
  PlanOptions options;
  options.contexts = {1024};
  options.batches = {2};
  const Plan plan = plan_of({"small", -5e9, kUnknown, 1e9}, options);
  EXPECT_EQ(plan.device_blocks, 0u);
  EXPECT_EQ(plan.rows[0].on_device, 0u);
  EXPECT_EQ(plan.rows[0].on_host, kUnlimited);
  EXPECT_EQ(plan.cells[0].offloaded, 64u);
  EXPECT_THAT(plan_text(plan, false), HasSubstr("nothing is left for KV"));
  const auto json = parse_json(plan_json(plan), "JSON");
  EXPECT_FALSE(json.contains("host_kv_bytes"));
  EXPECT_EQ(json.at("batches")[0].at("offloaded_blocks"), 64);
}

}  // namespace
}  // namespace tandem::eval
