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
  const SpadeRow row = simulate_spade_pack(pack, {});
  ASSERT_GT(row.ours.management_ms, row.ours.inference_ms) << "here the rank is the slower one";
  // Both are means, over other steps: a tenth of a percent apart at most.
  EXPECT_GE(row.step_ms, 0.999 * 36.0 / pack.layers * row.ours.management_ms);
  EXPECT_LT(row.step_ms, 1.2 * 36.0 / pack.layers * row.ours.management_ms);
}

TEST(SpadeTable2, TheTextSaysInHowManyRowsTheCacheRankKeepsUp) {
  std::vector<SpadeRow> rows;
  for (const SpadePack& pack : spade_table2()) {
    SpadeRow row{pack, {2, 1, 0.5}, {1, 1, 0.5}, 10, 1};
    if (rows.size() == 3) row.ours.management_ms = 3;
    rows.push_back(row);
  }
  const std::string text = spade_table2_text(rows, true);
  EXPECT_NE(text.find("(15 of 16 rows)"), std::string::npos) << text;
  EXPECT_NE(text.find("NO"), std::string::npos);
}

}  // namespace
}  // namespace tandem::eval
