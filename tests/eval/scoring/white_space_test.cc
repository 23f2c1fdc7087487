#include "eval/scoring/white_space.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem::eval {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(WhiteSpace, WordsAreWhatStandsBetween) {
  EXPECT_THAT(split_words(" a\n\n b\tc\r\n"), ElementsAre("a", "b", "c"));
  EXPECT_THAT(split_words("one"), ElementsAre("one"));
  EXPECT_THAT(split_words(" \n "), IsEmpty());
  EXPECT_THAT(split_words(""), IsEmpty());
}

TEST(WhiteSpace, UnicodeSpacesCountAndLettersThatShareTheirBytesDoNot) {
  // No-break space, em space, ideographic space; then a-grave and an ellipsis, which begin with the same bytes.
  EXPECT_THAT(split_words("a\xc2\xa0"
                          "b\xe2\x80\x83"
                          "c\xe3\x80\x80"
                          "d"),
              ElementsAre("a", "b", "c", "d"));
  EXPECT_THAT(split_words("\xc3\xa0 x\xe2\x80\xa6y"), ElementsAre("\xc3\xa0", "x\xe2\x80\xa6y"));
  EXPECT_EQ(strip("\xc2\xa0 a b \xe2\x80\x83\n"), "a b");
}

}  // namespace
}  // namespace tandem::eval
