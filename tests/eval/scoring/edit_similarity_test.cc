#include "eval/scoring/edit_similarity.h"

#include <gtest/gtest.h>
#include <string>

namespace tandem::eval {
namespace {

TEST(EditSimilarity, IsDifflibsAndNotTheEditDistances) {
  EXPECT_EQ(fuzzy_ratio("tide", "diet"), 25);
  EXPECT_EQ(fuzzy_ratio("diet", "tide"), 50);
  EXPECT_EQ(fuzzy_ratio("abcd", "bcde"), 75);
  EXPECT_EQ(fuzzy_ratio("ab", "abcdefghijklmn"), 25);
}

TEST(EditSimilarity, EqualIsAHundredAndEmptyNothing) {
  EXPECT_EQ(fuzzy_ratio("", ""), 100);
  EXPECT_EQ(fuzzy_ratio("x", "x"), 100);
  EXPECT_EQ(fuzzy_ratio("", "x"), 0);
  EXPECT_EQ(fuzzy_ratio("x", ""), 0);
}

TEST(EditSimilarity, HalvesAreRoundedToEven) {
  EXPECT_EQ(fuzzy_ratio("a", "abcdefghijklmno"), 12);  // 12.5
  EXPECT_EQ(fuzzy_ratio("abc", "abc0123456789"), 38);  // 37.5
}

TEST(EditSimilarity, CharactersAreUnicodes) {
  EXPECT_EQ(fuzzy_ratio("値段", "値上"), 50);
}

TEST(EditSimilarity, PopularCharactersOfLongTextsBeginNoMatch) {
  const std::string many(199, 'a');
  EXPECT_EQ(fuzzy_ratio("x" + many, "y" + many), 0);     // 200: "a" is popular, and no match is there to grow
  EXPECT_EQ(fuzzy_ratio("x" + many, many), 100);         // 199: it is not; 99.75 rounded
  EXPECT_EQ(fuzzy_ratio("xy" + many, "y" + many), 100);  // grown from "y"
}

TEST(EditSimilarity, PopularIsMoreThanOneInAHundredAndOneMore) {
  const std::string rest(190, 'x');
  EXPECT_EQ(fuzzy_ratio("q", "xqqq" + rest + "zzzzzz"), 1);  // 3 of 200
  EXPECT_EQ(fuzzy_ratio("q", "xqqqq" + rest + "zzzzz"), 0);  // 4 of 200
  EXPECT_EQ(fuzzy_ratio("q", "xqqqq" + rest + rest), 1);     // 4 of 385
}

TEST(CodeSimilarity, TheFirstLineWithoutCommentCounts) {
  EXPECT_EQ(code_similarity("\n\n# note\n```\n// x\nreturn x;\nmore", "return x;"), 1.0);
  EXPECT_EQ(code_similarity("\n  x", "  x"), 1.0);
  EXPECT_EQ(code_similarity("# note\n\nx", "x"), 0.0);  // the empty line is the first
  EXPECT_EQ(code_similarity("# note\n// x", "x"), 0.0);
  EXPECT_EQ(code_similarity("a / b", "a / b"), 1.0);
  EXPECT_EQ(code_similarity("x", "# note\nx"), 0.22);  // the answer counts as it is
}

}  // namespace
}  // namespace tandem::eval
