// Recall intervals from CPU compute ratios, and the profile that they come from.
#include "eval/heads/recall_profile.h"

#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "engine/common/error.h"
#include "eval/heads/report.h"
#include "methods/scoutattention/recall_intervals.h"
#include "tests/engine/model/model_folder.h"
#include "tests/engine/runtime/tiny.h"

namespace tandem::eval {
namespace {

using tandem::testing::Bench;
using tandem::testing::random_prompt;
using tandem::testing::tiny_model;

TEST(RecallInterval, IsTheLongestRunBelowTheThreshold) {
  EXPECT_EQ(longest_interval({0.01, 0.05, 0.11, 0.12, 0.05}, 0.12), 3u);
  EXPECT_EQ(longest_interval({0.3, 0.01}, 0.12), 1u);  // never less often than every step
  EXPECT_EQ(longest_interval({0.01, 0.02, 0.03}, 0.12), 3u);
}

std::vector<HeadPrompt> prompts() {
  std::vector<HeadPrompt> out(2);
  out[0].tokens = random_prompt(500, 3);
  out[1].tokens = random_prompt(400, 4);
  for (HeadPrompt& prompt : out) prompt.first_query = static_cast<std::uint32_t>(prompt.tokens.size() - 1);
  return out;
}

RecallOptions options() {
  RecallOptions o;
  o.method = "scoutattention:budget=192,block=16,sinks=16";
  o.budget = 192;
  o.steps = 12;
  o.threshold = 0.3;
  return o;
}

TEST(RecallProfile, RecallsLowerTheRatioAndIntervalsFollowTheThreshold) {
  Bench bench(tiny_model());
  const RecallProfile profile = profile_recall(bench.engine, prompts(), options());
  ASSERT_EQ(profile.intervals.size(), 2u);
  for (std::size_t l = 0; l < 2; ++l) {
    EXPECT_EQ(profile.intervals[l], longest_interval(profile.without[l], 0.3));
    // Until the first recall both runs are the same.
    for (std::uint32_t step = 0; step < profile.intervals[l]; ++step)
      EXPECT_EQ(profile.with[l][step], profile.without[l][step]) << l << " " << step;
    EXPECT_GT(profile.changed[l], 0);
    EXPECT_LT(profile.changed[l], 1);
  }
  EXPECT_LT(mean(profile.with), mean(profile.without));
  EXPECT_EQ(bench.engine.kv().bytes_in_use(Tier::device), 0u);

  HeadSource source;
  source.model = "tiny";
  const std::string text = recall_text(profile, source);
  EXPECT_THAT(text, ::testing::HasSubstr("Recalls of tiny under scoutattention:budget=192"));
  EXPECT_THAT(text, ::testing::HasSubstr("published"));
  const tandem::testing::TemporaryFolder folder;
  const std::string file = (folder.path() / "recall.json").string();
  std::ofstream(file) << recall_json(profile, source).dump(1);
  EXPECT_EQ(parse_recall_intervals(file).steps, profile.intervals);
}

TEST(RecallProfile, ABudgetForEverythingIsAMistake) {
  Bench bench(tiny_model());
  RecallOptions o = options();
  o.method = "scoutattention";
  o.budget = 2048;
  try {
    profile_recall(bench.engine, prompts(), o);
    FAIL();
  } catch (const InputError& e) {
    EXPECT_THAT(e.what(), ::testing::HasSubstr("resident under a budget of 2048 tokens"));
  }
  EXPECT_EQ(bench.engine.kv().bytes_in_use(Tier::device), 0u);
}

}  // namespace
}  // namespace tandem::eval
