#include <gtest/gtest.h>
#include <string>

#include "eval/scoring/rouge.h"

namespace tandem::eval {
namespace {

// What rouge 1.0.1 gives.
TEST(RougeL, QuirksOfThePackage) {
  EXPECT_EQ(rouge_l("a b", "a b"), 0.999999995);
  EXPECT_EQ(rouge_l("a a a a", "a"), 0.999999995);           // different words only
  EXPECT_EQ(rouge_l("a b. \n", "a b"), 0.7999999952000001);  // " \n" is a sentence with the empty word
  EXPECT_EQ(rouge_l("A b", "a b"), 0.4999999950000001);      // case counts
  for (const char* none : {"", ".", "..."}) {
    EXPECT_EQ(rouge_l(none, "a"), 0.0) << none;
    EXPECT_EQ(rouge_l("a", none), 0.0) << none;
    EXPECT_EQ(rouge_l(none, none), 0.0) << none;
  }
  EXPECT_EQ(rouge_l(" ", "\u3000"), 0.999999995);
}

TEST(RougeL, TheWalkBackDecidesWhichWordsAreCounted) {
  // "a" or "b" of each pair can be the subsequence. The union over both sentences has one word or two.
  EXPECT_EQ(rouge_l("b a. a b", "a b"), 0.999999995);
  EXPECT_EQ(rouge_l("b a", "a b"), 0.4999999950000001);
}

TEST(RougeL, LongSentencesHaveTheScoreThatNoRecursionLimitCuts) {
  std::string text;
  for (int i = 0; i < 2000; ++i) text += std::to_string(i) + " ";
  EXPECT_EQ(rouge_l(text, text), 0.999999995);
}

}  // namespace
}  // namespace tandem::eval
