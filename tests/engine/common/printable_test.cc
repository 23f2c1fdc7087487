#include "engine/common/printable.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

TEST(Printable, OrdinaryTextStays) {
  for (const char* text :
       {"", "hybrid:budget=0.2", "80.8 [72.9, 86.9]", "caf\u00e9 \u4e2d\u6587 \U0001F600 \u00a0|\u2026",
        "\u0915\u094d\u200d\u0937 joined", "a\\u001b", "\u061b \u05d0"})
    EXPECT_EQ(printable(text), text);
}

TEST(Printable, WhatMovesHidesOrTurnsIsSpelledOut) {
  EXPECT_EQ(printable("\x1b[2J\x1b]0;title\x07"), "\\u001b[2J\\u001b]0;title\\u0007");
  EXPECT_EQ(printable(std::string_view("a\0b", 3)), "a\\u0000b");
  EXPECT_EQ(printable("a\rb\bc\x7f"), "a\\u000db\\u0008c\\u007f");
  EXPECT_EQ(printable("\u009b31m\u0085"), "\\u009b31m\\u0085");  // C1
  EXPECT_EQ(printable("\u202Egnp.exe\u2066\u200f\u061c"), "\\u202egnp.exe\\u2066\\u200f\\u061c");
  EXPECT_EQ(printable("a\u2028b\u2029c\u200bd\ufeff"), "a\\u2028b\\u2029c\\u200bd\\ufeff");
  EXPECT_EQ(printable("\U000E0041"), "\\udb40\\udc41");
  EXPECT_EQ(printable("two\nlines\tand a tab"), "two\\u000alines\\u0009and a tab");
  EXPECT_EQ(printable_lines("two\nlines\tand a tab\r\n"), "two\nlines\tand a tab\\u000d\n");
}

TEST(Printable, BytesThatAreNoUtf8AreReplaced) {
  EXPECT_EQ(printable("\x9b"
                      "31m"),
            "\uFFFD31m");  // what an old terminal takes for an escape sequence
  EXPECT_EQ(printable("a\xff\xc3"), "a\uFFFD\uFFFD");
  EXPECT_EQ(printable("\xc0\x8a"), "\uFFFD\uFFFD") << "a line end in two bytes";
  EXPECT_EQ(printable("\xe2\x80"), "\uFFFD\uFFFD");
  EXPECT_EQ(printable("\xed\xa0\x80"), "\uFFFD\uFFFD\uFFFD") << "half of a pair";
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), "\uFFFD\uFFFD\uFFFD\uFFFD") << "beyond Unicode";
}

// Escaped in a JSON text it is the same JSON.
TEST(Printable, TwiceIsOnce) {
  const std::string once = printable("a\x1b\u202e\n\xff");
  EXPECT_EQ(printable(once), once);
}

}  // namespace
}  // namespace tandem
