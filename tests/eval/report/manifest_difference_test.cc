#include "eval/report/manifest_difference.h"

#include <gtest/gtest.h>

namespace tandem::eval {
namespace {

TEST(ManifestDifference, FieldsOfProtocolsByName) {
  const auto differences = protocol_differences("ruler/v1+tok:a+eos:stops", "ruler/v2+tok:a+query:aware");
  ASSERT_EQ(differences.size(), 3u);
  EXPECT_EQ(differences[0].field, "eos");
  EXPECT_EQ(differences[0].there, "stops");
  EXPECT_EQ(differences[0].here, "nothing");
  EXPECT_EQ(differences[1].field, "query");
  EXPECT_EQ(differences[2].field, "variant");
  EXPECT_TRUE(protocol_differences("ruler/v1+tok:a", "ruler/v1+tok:a").empty());
}

TEST(ManifestDifference, OptionsOfACommandThatCanBeTyped) {
  const std::string command = "tandem compare --methods 'a b --batch 9' --batch 4 --last";
  EXPECT_EQ(option_in(command, "--batch"), "4") << "what is quoted is one word";
  EXPECT_EQ(option_in(command, "--seed"), std::nullopt);
  EXPECT_EQ(option_in(command, "--last"), std::nullopt);
}

}  // namespace
}  // namespace tandem::eval
