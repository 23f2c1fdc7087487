#include "engine/common/json_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/common/error.h"

namespace tandem {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;
using ::testing::ThrowsMessage;

/// Number and field "a" of every line.
std::vector<std::pair<std::size_t, std::string>> read(const std::string& text) {
  std::vector<std::pair<std::size_t, std::string>> lines;
  for_each_json_line(text, "f", [&](const JsonLine& line) { lines.emplace_back(line.number(), line.text("a")); });
  return lines;
}

TEST(JsonLines, AreNumberedFromOneAndTheEmptyOnesCount) {
  EXPECT_THAT(read("{\"a\": \"x\"}\r\n\n{\"a\": \"y\"}"), ElementsAre(Pair(1, "x"), Pair(3, "y")));
}

TEST(JsonLines, WhiteSpaceAloneIsAnEmptyLine) {
  EXPECT_THAT(read("  \n\t\r\n {\"a\": \"x\"} \n \t "), ElementsAre(Pair(3, "x")));
  EXPECT_THAT([] { read(" \n\t\r\n"); }, ThrowsMessage<InputError>("f holds no sample."));
}

TEST(JsonLines, WhatIsNoneIsRefusedWithItsReason) {
  const auto expect = [](const std::string& line, const char* reason) {
    EXPECT_THAT([&] { read("{\"a\": \"x\"}\n" + line); },
                ThrowsMessage<InputError>(std::string("f, line 2: ") + reason))
        << line;
  };
  expect("[]", "not a JSON object.");
  expect("\"a\"", "not a JSON object.");
  expect("{\"a\": \"\xff\"}", "not valid JSON from byte 8 of 10 on.");  // no UTF-8
  expect("{\"a\": \"x\ty\"}", "not valid JSON from byte 9 of 12 on.");  // a control character
  expect("{\"a\": \"x\"} {", "not valid JSON from byte 12 of 12 on.");  // two values
  expect("{\"a\": 1e999}", "not valid JSON: a number is too large.");
  expect("{\"a\": \"x\", \"a\": \"y\"}", "the field 'a' occurs twice.");
  expect("{\"a\": " + std::string(40, '[') + std::string(40, ']') + "}", "its brackets are nested more than 32 deep.");
}

TEST(JsonLines, FieldsThatAreNotThereAreNamed) {
  EXPECT_THAT([] { read("\n{\"b\": 1}"); }, ThrowsMessage<InputError>("f, line 2: 'a' is missing."));
  EXPECT_THAT([] { read("{\"a\": 1}"); }, ThrowsMessage<InputError>("f, line 1: 'a' must hold text."));
}

}  // namespace
}  // namespace tandem
