#include "eval/run/decoded.h"

#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "methods/registry.h"
#include "tests/methods/fluxion/tiny_predictor.h"

namespace tandem::eval {
namespace {

TEST(BudgetMeanings, AreOfEachMethodOnceByName) {
  EXPECT_EQ(budget_meanings(method_entries({"full"})), "none");
  const std::string hgca = "hgca=" + find_method("hgca").budget,
                    streaming = "streaming=" + find_method("streaming").budget;
  EXPECT_EQ(budget_meanings(method_entries({"streaming", "full", "hgca", "hgca:beta=0.5"})), hgca + "," + streaming);
}

TEST(MethodRemarks, SayWhereQuestHasNoDenseLayersAndSayItOnce) {
  EXPECT_TRUE(method_remarks(method_entries({"full"}), "").empty());
  EXPECT_EQ(method_remarks(method_entries({"quest", "quest:budget=64"}), "").size(), 1u);
}

TEST(MethodRemarks, NameAPredictorOfOtherWeights) {
  const testing::TemporaryFolder folder;
  const auto remarks = [&](std::vector<std::uint32_t> trained, const char* weights) {
    const std::string file = testing::write_predictor(folder, std::move(trained)).string();
    return method_remarks(method_entries({"full", "fluxion:sinks=16,window=32,heads=" + file}), weights);
  };
  EXPECT_TRUE(remarks({}, "0000000000000012").empty());  // it does not say
  EXPECT_TRUE(remarks({0, 0x12}, "0000000000000012").empty());
  const std::vector<std::string> other = remarks({0, 0x12}, "0000000100000012");
  ASSERT_EQ(other.size(), 1u);
  EXPECT_THAT(other[0], ::testing::HasSubstr(
                            "another model of this shape (weights 0000000000000012; these are 0000000100000012)"));
}

TEST(MethodRemarks, NameRecallsOfOtherWeights) {
  const testing::TemporaryFolder folder;
  const auto remarks = [&](const std::string& file, const std::string& json) {
    const auto path = folder.path() / file;
    std::ofstream(path) << json;
    return method_remarks(method_entries({"full", "scoutattention:recall=" + path.string()}), "0000000100000012");
  };
  EXPECT_TRUE(remarks("silent.json", R"({"intervals": [1, 2]})").empty());
  EXPECT_TRUE(remarks("own.json", R"({"intervals": [1, 2], "weights_hash": "0000000100000012"})").empty());
  const auto other = remarks("other.json", R"({"intervals": [1, 2], "weights_hash": "0000000000000012"})");
  ASSERT_EQ(other.size(), 1u);
  EXPECT_THAT(other[0], ::testing::HasSubstr("(weights 0000000000000012; these are 0000000100000012)"));
}

TEST(MethodRemarks, SayThatDrawnHeadsKnowNothingOfTheModel) {
  const std::vector<std::string> drawn = method_remarks(method_entries({"full", "fluxion:heads=published"}), "");
  ASSERT_EQ(drawn.size(), 1u);
  EXPECT_THAT(drawn[0], ::testing::HasSubstr("knows nothing of this model"));
}

}  // namespace
}  // namespace tandem::eval
