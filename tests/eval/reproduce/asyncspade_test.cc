#include "eval/reproduce/asyncspade.h"

#include <gtest/gtest.h>

namespace tandem::eval {
namespace {

TEST(SpadeTable2, HasTheSixteenPublishedRows) {
  const std::vector<SpadePack>& rows = spade_table2();
  ASSERT_EQ(rows.size(), 16u);
  for (const SpadePack& row : rows) {
    EXPECT_LT(row.management_ms, row.inference_ms);
    if (std::string(row.model) != "qwen3-8b") continue;
    // Twice the selected K and V of the pack in MiB over the inference time.
    const double mib = 2.0 * row.batch * row.selected * row.layers * 2 * 8 * 128 * 2 / (1 << 20);
    EXPECT_NEAR(row.bandwidth, mib / row.inference_ms, 0.06);
  }
}

// A step waits for the cache rank's work of one step; the first steps have a head start.
TEST(SpadeTable2, AStepTakesAtLeastTheCacheRanksTime) {
  const SpadePack& pack = spade_table2().front();
  const SpadeRun run = simulate_spade_pack(pack, 0, {});
  ASSERT_GT(run.times.management_ms, run.times.inference_ms) << "here the rank is the slower one";
  // Both are means, over other steps: two tenths of a percent apart at most.
  EXPECT_GE(run.step_ms, 0.998 * 36.0 / pack.layers * run.times.management_ms);
  EXPECT_LT(run.step_ms, 1.2 * 36.0 / pack.layers * run.times.management_ms);
}

// The framework's time is the inference rank's alone: its layers take that much longer, the cache rank's work does not.
TEST(SpadeTable2, TheFrameworkSlowsTheInferenceRankOnly) {
  ASSERT_TRUE(sets_framework(spade_table2().front()));
  const SpadeRun bare = simulate_spade_pack(spade_table2().front(), 0, {}),
                 with_framework = simulate_spade_pack(spade_table2().front(), 0.9, {});
  // Copies between the ranks share the device's memory with other operations then, and less of it while layers wait.
  EXPECT_NEAR(with_framework.times.inference_ms, bare.times.inference_ms + 6 * 0.9,
              2e-2 * with_framework.times.inference_ms);
  EXPECT_NEAR(with_framework.times.management_ms, bare.times.management_ms, 1e-3 * bare.times.management_ms);
  EXPECT_LT(with_framework.idle_ms, 0.01 * with_framework.step_ms) << "now the rank keeps up";
}

// What a pack is said to read is what the simulation charges it.
TEST(SpadeTable2, TheCacheRanksTimeIsItsBytesAtTheRateOfAttention) {
  const SpadePack& pack = spade_table2()[8];
  const SpadeRun run = simulate_spade_pack(pack, 0, {});
  const HardwareProfile::DeviceRates device = load_profile("asyncspade-a100").device;
  const double per_ms = device.hbm_gbps * device.attention_efficiency * 1e6;
  // Of 64 query heads' scores over 32K tokens, 32 choices are two rounds of six kernels behind one for the new queries:
  // two read nearly all, and each of the others takes its floor.
  // The two have the fixed time of attention.
  const double floors_ms = 1e-6 * static_cast<double>(11 * device.op_floor_ns + 2 * device.attention_ns);
  EXPECT_NEAR(run.times.management_ms,
              spade_bytes(pack, load_shape(pack.model).config).management() / per_ms + floors_ms,
              0.015 * run.times.management_ms);
  EXPECT_LT(run.times.management_ms, run.times.inference_ms) << "at a large model's shape the rank keeps up";
  EXPECT_LT(run.idle_ms, 0.01 * run.step_ms);
}

// Bytes by hand: 36 layers of (weights + 8 x 2,048 tokens of K and V) and the vocabulary, over 2,039 GB/s.
TEST(SpadeFigure10, TheRooflineIsThatOfTheBytes) {
  const SpadeBar bar = simulate_spade_bar({"qwen3-8b", "a100", "asyncspade:budget=2048,place=peer"}, {});
  const double weights = 2.0 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3.0 * 4096 * 12288), kv = 8 * 2048 * 4096.0;
  EXPECT_NEAR(bar.roofline_ms, (36 * (weights + kv) + 2.0 * 4096 * 151936) / 2039e6, 1e-6);
  EXPECT_NEAR(bar.rank_ms, 36 * (8 * 32768 * 2048.0 + 2 * kv) / 2039e6, 1e-6);
  EXPECT_GT(bar.tpot_ms, bar.rank_ms) << "each step waits for it";
  // Whole pages of 16 before the last step's token, the choice, and W + 1 queries of each head.
  EXPECT_NEAR(bar.peer_gb, (36 * 8 * 4096.0 * (32768 + 32 + 2048) + 17 * 4 * 36 * 8 * 4096.0) * 1e-9, 1e-9);
  EXPECT_TRUE(bar.fits());
  const std::string text = spade_fig10_text({bar}, true), json = spade_fig10_json({bar});
  EXPECT_NE(text.find("41.2 of 76.0"), std::string::npos) << text;
  EXPECT_NE(json.find("\"peer_gb\": 41."), std::string::npos) << json;
  EXPECT_NE(json.find("git_commit"), std::string::npos);
}

TEST(SpadeTable2, TheTextSaysInHowManyRowsTheCacheRankKeepsUp) {
  std::vector<SpadeRow> rows;
  for (const SpadePack& pack : spade_table2()) {
    SpadeRow row;
    row.pack = pack;
    row.ours = {{2, 1, 0.5}, 10, 1};
    row.roofline = {1, 1, 0.5};
    row.with_framework = {{row.pack.inference_ms * 1.05, 1, 0.5}, 20, 1};
    row.fitted = sets_framework(row.pack);
    row.framework_ms = 0.25;
    if (rows.size() == 3) row.ours.times.management_ms = 3;
    rows.push_back(row);
  }
  const std::string text = spade_table2_text(rows, true);
  EXPECT_NE(text.find("less than the simulated one in 15"), std::string::npos) << text;
  EXPECT_NE(text.find("16 of 16 rows"), std::string::npos) << text;
  EXPECT_NE(text.find("with the framework in 16"), std::string::npos) << text;
  EXPECT_NE(text.find("of the 14 other inference times 14 are within 10 %"), std::string::npos) << text;
  EXPECT_NE(text.find("0.250 ms on a100"), std::string::npos) << text;
  EXPECT_NE(text.find("NO"), std::string::npos);
}

}  // namespace
}  // namespace tandem::eval
