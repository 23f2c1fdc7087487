#include "engine/common/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "engine/common/error.h"

namespace tandem {
namespace {

using ::testing::ThrowsMessage;

std::string nested(int depth) {
  return std::string(depth, '[') + std::string(depth, ']');
}

TEST(JsonText, IsParsedWithItsOrderOrSorted) {
  EXPECT_EQ(json_text(parse_json(R"({"b": 1, "a": [2.5, null]})", "x")), R"({"a":[2.5,null],"b":1})");
  EXPECT_EQ(json_text(parse_ordered_json(R"({"b": 1, "a": [2.5, null]})", "x")), R"({"b":1,"a":[2.5,null]})");
  EXPECT_EQ(json_text(parse_json(nested(kJsonNesting), "x")), nested(kJsonNesting));
}

TEST(JsonText, WhatIsNoneIsASentence) {
  const auto expect = [](const std::string& text, const char* sentence) {
    EXPECT_THAT([&] { parse_json(text, "f.json"); }, ThrowsMessage<InputError>(sentence)) << text.substr(0, 40);
    EXPECT_THAT([&] { parse_ordered_json(text, "f.json"); }, ThrowsMessage<InputError>(sentence)) << text.substr(0, 40);
  };
  expect("", "f.json: not valid JSON from byte 1 of 0 on.");
  expect("{} x", "f.json: not valid JSON from byte 4 of 4 on.");
  expect(std::string("{}\0", 3), "f.json: not valid JSON from byte 3 of 3 on.");
  expect(std::string("[1]\0[2]", 7), "f.json: not valid JSON from byte 4 of 7 on.");
  expect(std::string("[\"a\0b\"]", 7), "f.json: not valid JSON from byte 4 of 7 on.");
  expect("[1e999]", "f.json: not valid JSON: a number is too large.");
  expect(R"({"a": 1, "b": {"a": 2, "a": 3}})", "f.json: the field 'a' occurs twice.");
  for (const int depth : {kJsonNesting + 1, 400000})
    expect(nested(depth), "f.json: its brackets are nested more than 32 deep.");
  EXPECT_EQ(parse_json(R"([{"a": 1}, {"a": 2}])", "x").size(), 2u) << "one name in two objects";
}

TEST(JsonText, BracketsInTextsDoNotNest) {
  EXPECT_FALSE(nests_deeper(R"(["[[[[\"[[[[", "{{{{"])", 1));
  EXPECT_TRUE(nests_deeper(R"(["[\\", []])", 1));
  EXPECT_FALSE(nests_deeper("[[]][[]]", 2));
}

TEST(JsonText, DiscardedWhereTheCallerSaysWhatIsWrong) {
  EXPECT_EQ(json_or_discarded("[1]").size(), 1u);
  for (const std::string& text : {std::string("{"), std::string("[1e999]"), std::string("[1]\0", 4), nested(400000)})
    EXPECT_TRUE(json_or_discarded(text).is_discarded()) << text.substr(0, 40);
}

TEST(JsonText, BytesThatAreNoTextAreReplaced) {
  EXPECT_EQ(json_quoted("a\xff\"\n"), "\"a\xEF\xBF\xBD\\\"\\n\"");
  EXPECT_EQ(json_quoted("\xC3\xA9"), "\"\xC3\xA9\"");
  EXPECT_EQ(json_quoted("\xC3\xA9\xff", /*ascii=*/true), R"("\u00e9\ufffd")");
  EXPECT_EQ(json_text(nlohmann::json{{"a", "\xff"}}, 1), "{\n \"a\": \"\xEF\xBF\xBD\"\n}");
}

TEST(JsonText, AnExcerptEndsBetweenCharacters) {
  EXPECT_EQ(json_excerpt(nlohmann::json("short")), "\"short\"");
  const std::string long_text = json_excerpt(nlohmann::json(std::string(58, 'x') + "\xC3\xA9 and more"));
  EXPECT_EQ(long_text, '"' + std::string(58, 'x') + "...");
  EXPECT_EQ(json_excerpt(nlohmann::ordered_json(std::string(100, 'x'))), '"' + std::string(59, 'x') + "...");
}

}  // namespace
}  // namespace tandem
