// Methods of a run that is older than an option.
#include <gtest/gtest.h>

#include "eval/report/manifest_difference.h"

namespace tandem::eval {
namespace {

MethodEntry quest(std::vector<std::pair<std::string, std::string>> options) {
  return {"quest:budget=512", "quest", std::move(options), ""};
}

TEST(MethodEntries, AnOptionThatARunDidNotKnowHasItsDefault) {
  const MethodEntry older = quest({{"budget", "512"}, {"page", "16"}});
  EXPECT_EQ(option_of(older, "budget"), "512");
  EXPECT_EQ(option_of(older, "digest"), "bounds");
  EXPECT_EQ(option_of(older, "nonsense"), "");
  EXPECT_EQ(option_of({"own", "own", {{"a", "1"}}, ""}, "digest"), "") << "of a method that is not here";
}

TEST(MethodEntries, AreTheSameWithDefaultsSpelledOutOnOneSide) {
  const MethodEntry older = quest({{"budget", "512"}, {"page", "16"}});
  EXPECT_TRUE(same_method(older, quest({{"page", "16"}, {"budget", "512"}, {"digest", "bounds"}})));
  EXPECT_TRUE(same_method(quest({{"page", "16"}, {"budget", "512"}, {"digest", "bounds"}}), older));
  const MethodEntry means = quest({{"budget", "512"}, {"page", "16"}, {"digest", "mean"}});
  EXPECT_FALSE(same_method(older, means));
  EXPECT_FALSE(same_method(means, older));
  EXPECT_TRUE(same_options(older, means, {"digest"}));
  EXPECT_FALSE(same_method(older, quest({{"budget", "256"}, {"page", "16"}})));
  MethodEntry other_file = older;
  other_file.content = "0123456789abcdef";
  EXPECT_FALSE(same_method(older, other_file));
}

}  // namespace
}  // namespace tandem::eval
