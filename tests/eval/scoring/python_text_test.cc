#include "eval/scoring/python_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem::eval {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// All expectations are what Python 3.11 prints.
TEST(PythonText, LowerKnowsAllScripts) {
  EXPECT_EQ(lower("ABC xyz 12"), "abc xyz 12");
  EXPECT_EQ(lower("ÄÉЖ ＡＢ Ⅻ ẞ 𐐀"), "äéж ａｂ ⅻ ß 𐐨");
  EXPECT_EQ(code_points(lower("İ")), U"i\u0307");
  EXPECT_EQ(lower("中文"), "中文");
}

TEST(PythonText, ASigmaIsFinalAtTheEndOfAWordOnly) {
  EXPECT_EQ(lower("ΟΔΟΣ"), "οδος");
  EXPECT_EQ(lower("ΟΔΟΣ ΣΑΣ"), "οδος σας");
  EXPECT_EQ(lower("Σ"), "σ");
  EXPECT_EQ(lower("ΑΣ.Α ΑΣ. Α"), "ασ.α ας. α");  // a full stop inside a word is part of it
  EXPECT_EQ(lower("ΑΣ5 5Σ ªΣ Α'Σ"), "ας5 5σ ªς α'ς");
}

TEST(PythonText, ClassesOfCharactersAreUnicodes) {
  for (const char32_t c : U"aZ_é中٣３²½Ⅻª") {
    if (c == 0) continue;
    EXPECT_TRUE(is_word(c)) << static_cast<unsigned>(c);
  }
  for (const char32_t c : U" -\u0301\u200D。€") EXPECT_FALSE(is_word(c)) << static_cast<unsigned>(c);
  EXPECT_TRUE(is_digit(U'0') && is_digit(U'３') && is_digit(U'٣') && is_digit(U'𝟗'));
  EXPECT_FALSE(is_digit(U'²') || is_digit(U'½') || is_digit(U'Ⅻ') || is_digit(U'三') || is_digit(U'a'));
  EXPECT_TRUE(is_ascii_punctuation(U'_') && is_ascii_punctuation(U'~') && is_ascii_punctuation(U'!'));
  EXPECT_FALSE(is_ascii_punctuation(U' ') || is_ascii_punctuation(U'a') || is_ascii_punctuation(U'，') ||
               is_ascii_punctuation(U'\x7F'));
}

TEST(PythonText, BrokenBytesBecomeReplacementCharacters) {
  EXPECT_EQ(code_points("a\xff"
                        "b\xe4\xb8"),
            U"a\uFFFDb\uFFFD");
  EXPECT_EQ(to_utf8(U"a中😀"), "a中😀");
  EXPECT_EQ(code_points(""), U"");
}

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
