#include "engine/common/error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <vector>

namespace tandem::testing {
namespace {

using ::testing::HasSubstr;
using Names = std::vector<std::string>;

TEST(DidYouMean, GivesTheNearestName) {
  const Names names = {"quest", "infinigen", "shadowkv", "full"};
  EXPECT_EQ(did_you_mean("qest", names), " Did you mean 'quest'?");
  EXPECT_EQ(did_you_mean("shadowvk", names), " Did you mean 'shadowkv'?");
  EXPECT_EQ(did_you_mean("full", names), " Did you mean 'full'?");
  EXPECT_EQ(did_you_mean("ful", names), " Did you mean 'full'?");
}

TEST(DidYouMean, NamesThatContainItComeFirst) {
  const Names names = {"fluxion-a100", "h100", "scout-a100"};
  EXPECT_EQ(did_you_mean("a100", names), " Did you mean 'fluxion-a100' or 'scout-a100'?");
  EXPECT_EQ(did_you_mean("h100", Names{"fast-h100", "h100"}), " Did you mean 'h100'?");
  EXPECT_EQ(did_you_mean("100", names), " Did you mean 'h100'?");
}

TEST(DidYouMean, IsSilentWhereNothingIsNear) {
  const Names names = {"quest", "infinigen"};
  EXPECT_EQ(did_you_mean("zzzzzzzz", names), "");
  EXPECT_EQ(did_you_mean("quest", Names{}), "");
  EXPECT_EQ(did_you_mean("", Names{"abc"}), "");
  EXPECT_EQ(did_you_mean("abc", Names{""}), "");
}

TEST(DidYouMean, TheFirstOfEquallyNearNamesWins) {
  EXPECT_EQ(did_you_mean("cat", Names{"car", "can"}), " Did you mean 'car'?");
  EXPECT_EQ(did_you_mean("cat", Names{"cart", "cat", "car"}), " Did you mean 'cat'?");
}

TEST(DidYouMean, CountsInsertionsDeletionsSubstitutionsAndSwaps) {
  // One edit for every three letters, one at least.
  EXPECT_NE(did_you_mean("abcdef", Names{"abcdxy"}), "");
  EXPECT_NE(did_you_mean("abcdef", Names{"abcd"}), "");
  EXPECT_NE(did_you_mean("abcdef", Names{"xabcdefx"}), "");
  EXPECT_NE(did_you_mean("abcdef", Names{"badcef"}), "");
  EXPECT_NE(did_you_mean("abcd", Names{"abdc"}), "");
  EXPECT_EQ(did_you_mean("abcdef", Names{"abcxyz"}), "");
  EXPECT_EQ(did_you_mean("a100", Names{"h200"}), "");
  EXPECT_EQ(did_you_mean("abcdef", Names{"badcfe"}), "");
}

TEST(JoinNames, ReadsLikeASentence) {
  EXPECT_EQ(join_names(Names{}), "");
  EXPECT_EQ(join_names(Names{"a"}), "a");
  EXPECT_EQ(join_names(Names{"a", "b"}), "a and b");
  EXPECT_EQ(join_names(Names{"a", "b", "c"}), "a, b and c");
}

template <class Error, class Action>
std::string message_of(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(Errors, CarryTheirSentenceAndKind) {
  EXPECT_EQ(message_of<InputError>([] { throw_input_error("{} has {} bytes.", "file", 7); }), "file has 7 bytes.");
  EXPECT_EQ(message_of<RunError>([] { throw_run_error("disk {} is full", 1); }), "disk 1 is full");
  // Exit codes are chosen by kind: neither may be caught as the other, and an interruption is not an input error.
  static_assert(!std::is_base_of_v<RunError, InputError> && !std::is_base_of_v<InputError, RunError>);
  static_assert(std::is_base_of_v<RunError, Interrupted>);
  static_assert(!std::is_base_of_v<std::runtime_error, LogicError>);
}

TEST(Check, PassesSilentlyAndFailsWithPlaceConditionAndReason) {
  int evaluated = 0;
  TANDEM_CHECK(++evaluated == 1, "never shown");
  EXPECT_EQ(evaluated, 1);  // exactly once
  const std::string said = message_of<LogicError>([] { TANDEM_CHECK(1 + 1 == 3, "sum is {}", 2); });
  EXPECT_THAT(said, ::testing::AllOf(HasSubstr("error_test.cc"), HasSubstr("1 + 1 == 3"), HasSubstr("sum is 2")));
}

}  // namespace
}  // namespace tandem::testing
