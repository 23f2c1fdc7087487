#include "eval/scoring/python_text.h"

#include <gtest/gtest.h>

namespace tandem::eval {
namespace {

std::string lower_utf8(std::string_view text) {
  return to_utf8(lower(code_points(text)));
}

// All expectations are what Python 3.11 prints.
TEST(PythonText, LowerKnowsAllScripts) {
  EXPECT_EQ(lower_utf8("ABC xyz 12"), "abc xyz 12");
  EXPECT_EQ(lower_utf8("ÄÉЖ ＡＢ Ⅻ ẞ 𐐀"), "äéж ａｂ ⅻ ß 𐐨");
  EXPECT_EQ(code_points(lower_utf8("İ")), U"i\u0307");
  EXPECT_EQ(lower_utf8("中文"), "中文");
}

TEST(PythonText, ASigmaIsFinalAtTheEndOfAWordOnly) {
  EXPECT_EQ(lower_utf8("ΟΔΟΣ"), "οδος");
  EXPECT_EQ(lower_utf8("ΟΔΟΣ ΣΑΣ"), "οδος σας");
  EXPECT_EQ(lower_utf8("Σ"), "σ");
  EXPECT_EQ(lower_utf8("ΑΣ.Α ΑΣ. Α"), "ασ.α ας. α");  // a full stop inside a word is part of it
  EXPECT_EQ(lower_utf8("ΑΣ5 5Σ ªΣ Α'Σ"), "ας5 5σ ªς α'ς");
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

}  // namespace
}  // namespace tandem::eval
