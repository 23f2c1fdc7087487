#include "eval/scoring/string_match.h"

#include <gtest/gtest.h>
#include <vector>

namespace tandem::eval {
namespace {

using Strings = std::vector<std::string>;

TEST(StringMatch, AllIsTheShareOfReferencesFound) {
  EXPECT_EQ(string_match_all("the number is 1234567.", Strings{"1234567"}), 1.0);
  EXPECT_EQ(string_match_all("1, 2 and 4", Strings{"1", "2", "3", "4"}), 0.75);
  EXPECT_EQ(string_match_all("", Strings{"1"}), 0.0);
  EXPECT_EQ(string_match_all("x", Strings{""}), 1.0);  // Python: '' in 'x'
  EXPECT_EQ(string_match_all("x", Strings{}), 0.0);
}

TEST(StringMatch, NoWordBoundaryAsUpstream) {
  EXPECT_EQ(string_match_all("1234", Strings{"12"}), 1.0);
  EXPECT_EQ(string_match_all("12 34", Strings{"1234"}), 0.0);
}

TEST(StringMatch, CaseIsFoldedOnBothSides) {
  EXPECT_EQ(string_match_all("ABLE-Acid", Strings{"able-ACID"}), 1.0);
  EXPECT_EQ(string_match_all("[@", Strings{"{`"}), 0.0);  // neighbours of the letters in ASCII stay
}

// All expectations are what Python 3.11 says to `reference.lower() in prediction.lower()`.
TEST(StringMatch, CaseIsFoldedInAllScripts) {
  EXPECT_EQ(string_match_all("So ein Ärger!", Strings{"ärger"}), 1.0);
  EXPECT_EQ(string_match_all("so ein ärger", Strings{"ÄRGER"}), 1.0);
  EXPECT_EQ(string_match_all("in МОСКВА", Strings{"Москва", "москвы"}), 0.5);
  EXPECT_EQ(string_match_all("STRASSE", Strings{"straße"}), 0.0) << "lower(), not casefold()";
  EXPECT_EQ(string_match_all("300 k", Strings{"300 \u212A"}), 1.0) << "the sign of kelvin lowers to a letter of ASCII";
  EXPECT_EQ(string_match_all("istanbul", Strings{"İstanbul"}), 0.0) << "its i keeps a dot of its own";
}

TEST(StringMatch, ASigmaIsLoweredByWhatStandsBesideIt) {
  EXPECT_EQ(string_match_all("Η ΟΔΟΣ ΕΙΝΑΙ", Strings{"οδος", "οδοσ"}), 0.5);
  EXPECT_EQ(string_match_all("ΟΔΟΣΑ", Strings{"ΟΔΟΣ"}), 0.0) << "final in the reference alone";
}

TEST(StringMatch, BrokenUtf8DoesNoHarm) {
  EXPECT_EQ(string_match_all("\xff\xc3 ÄRGER \xe2\x80", Strings{"ärger"}), 1.0);
  EXPECT_EQ(string_match_all("Able\xc3", Strings{"able"}), 1.0);
  EXPECT_EQ(string_match_all("\xc3", Strings{"Ã", "\xa4"}), 0.5) << "a broken byte is U+FFFD, whichever it was";
  EXPECT_EQ(string_match_part("\x80\xbf", Strings{"able"}), 0.0);
}

TEST(StringMatch, PartIsAnyReference) {
  EXPECT_EQ(string_match_part("it was Paris", Strings{"London", "paris"}), 1.0);
  EXPECT_EQ(string_match_part("it was Rome", Strings{"London", "paris"}), 0.0);
  EXPECT_EQ(string_match_part("anything", Strings{}), 0.0);
  EXPECT_EQ(string_match_part("", Strings{"gold"}), 0.0);  // an empty prediction never scores
}

TEST(Postprocess, StripsAndTurnsControlCharactersIntoNewlines) {
  EXPECT_EQ(postprocess_prediction("  a\tb\x01"
                                   "c \n"),
            "a\nb\nc");
  EXPECT_EQ(postprocess_prediction(std::string("\0x\0", 3)), "x");  // NUL becomes a newline, then is stripped
  EXPECT_EQ(postprocess_prediction("\x7f"), "\x7f");                // DEL is not in the pattern
  EXPECT_EQ(postprocess_prediction(" \t\r\n\x1c "), "");
  EXPECT_EQ(postprocess_prediction(""), "");
}

TEST(Postprocess, StripsPythonsUnicodeSpaces) {
  // str.strip() in CPython 3.11 for each; U+200B (zero width) and U+180E are no spaces.
  for (const char* space : {"\xc2\x85", "\xc2\xa0", "\xe1\x9a\x80", "\xe2\x80\x80", "\xe2\x80\x8a", "\xe2\x80\xa8",
                            "\xe2\x80\xa9", "\xe2\x80\xaf", "\xe2\x81\x9f", "\xe3\x80\x80"}) {
    EXPECT_EQ(postprocess_prediction(std::string(space) + "x y" + space + " " + space), "x y");
  }
  EXPECT_EQ(postprocess_prediction("\xe2\x80\x8bx"), "\xe2\x80\x8bx");
  EXPECT_EQ(postprocess_prediction("\xe1\xa0\x8ex"), "\xe1\xa0\x8ex");
}

TEST(Postprocess, KeepsBytesThatAreNoUtf8) {
  EXPECT_EQ(postprocess_prediction("\xff\x80 a \x85"), "\xff\x80 a \x85");
  EXPECT_EQ(postprocess_prediction("\xe2\x80"), "\xe2\x80");
}

}  // namespace
}  // namespace tandem::eval
