#include "eval/run/decoded.h"

#include <gtest/gtest.h>

#include "methods/registry.h"

namespace tandem::eval {
namespace {

TEST(BudgetMeanings, AreOfEachMethodOnceByName) {
  EXPECT_EQ(budget_meanings(method_entries({"full"})), "none");
  const std::string hgca = "hgca=" + find_method("hgca").budget,
                    streaming = "streaming=" + find_method("streaming").budget;
  EXPECT_EQ(budget_meanings(method_entries({"streaming", "full", "hgca", "hgca:beta=0.5"})), hgca + "," + streaming);
}

TEST(MethodRemarks, SayWhereQuestHasNoDenseLayersAndSayItOnce) {
  EXPECT_TRUE(method_remarks(method_entries({"full"})).empty());
  EXPECT_EQ(method_remarks(method_entries({"quest", "quest:budget=64"})).size(), 1u);
}

}  // namespace
}  // namespace tandem::eval
