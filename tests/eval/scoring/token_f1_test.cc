#include "eval/scoring/token_f1.h"

#include <gtest/gtest.h>
#include <vector>

namespace tandem::eval {
namespace {

using Strings = std::vector<std::string>;

TEST(TokenF1, AWordCountsAsOftenAsBothHaveIt) {
  EXPECT_EQ(qa_f1("b b b c", "b b d"), 2 * 0.5 * (2.0 / 3) / (0.5 + 2.0 / 3));
  EXPECT_EQ(qa_f1("x y", "y x"), 1.0);
  EXPECT_EQ(qa_f1("The answer is: Paris.", "paris"), 0.5);
}

TEST(TokenF1, NothingInCommonIsZero) {
  EXPECT_EQ(qa_f1("x", "y"), 0.0);
  EXPECT_EQ(qa_f1("", ""), 0.0);
  EXPECT_EQ(qa_f1("the", "the"), 0.0);  // no words are left
}

TEST(TokenF1, ChineseWordsAreNormalisedOneByOne) {
  EXPECT_EQ(qa_f1_zh(Strings{"北京", "。", " ", "GPU"}, Strings{"北京", "gpu"}), 1.0);
  EXPECT_EQ(qa_f1_zh(Strings{"北", "京"}, Strings{"北京"}), 0.0);
  EXPECT_EQ(qa_f1_zh(Strings{"。"}, Strings{"。"}), 0.0);
  EXPECT_EQ(qa_f1_zh(Strings{}, Strings{"北京"}), 0.0);
}

}  // namespace
}  // namespace tandem::eval
