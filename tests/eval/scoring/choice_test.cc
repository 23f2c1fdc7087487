#include "eval/scoring/choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <vector>

#include "engine/common/error.h"

namespace tandem::eval {
namespace {

using Strings = std::vector<std::string>;

TEST(Classification, OneOverTheClassesThatAreNamed) {
  EXPECT_EQ(classification("Food or City", "City", Strings{"City", "Food", "Sport"}), 0.5);
  EXPECT_EQ(classification("Food", "City", Strings{"City", "Food"}), 0.0);
  EXPECT_EQ(classification("City", "City", Strings{}), 0.0);
}

TEST(Classification, PartsOfTheAnswerDoNotCountButOneAfterAnotherStays) {
  EXPECT_EQ(classification("Sport event", "Sport event", Strings{"Sport", "Food", "Sport event"}), 1.0);
  EXPECT_EQ(classification("Sport event", "Sport event", Strings{"Sport", "event", "Sport event"}), 0.5);
  EXPECT_EQ(classification("Sport event", "Sport event", Strings{"Sport", "Sport event", "event"}), 1.0);
  EXPECT_EQ(classification("abc", "abc", Strings{"a", "b", "abc", "a"}), 0.5);
}

TEST(CountScore, NumbersAreComparedAsTexts) {
  EXPECT_EQ(count_score("3 or 12, no: 3", "3"), 2.0 / 3);
  EXPECT_EQ(count_score("03 ３", "3"), 0.0);
  EXPECT_EQ(count_score("３", "３"), 1.0);
  EXPECT_EQ(count_score("3.5", "3"), 0.5);
  EXPECT_EQ(count_score("3²", "3"), 1.0);  // a superscript is no decimal digit
  EXPECT_EQ(count_score("none", ""), 0.0);
}

TEST(Retrieval, TheFirstParagraphOfTheAnswerCounts) {
  EXPECT_EQ(retrieval("Paragraph 12", "Paragraph 12"), 1.0);
  EXPECT_EQ(retrieval("1 12", "Paragraph x, Paragraph 12, Paragraph 1"), 0.5);
  EXPECT_EQ(retrieval("", "Paragraph 12"), 0.0);
  EXPECT_EQ(retrieval_zh("是段落12", "段落12"), 1.0);
  EXPECT_EQ(retrieval_zh("３", "段落３"), 1.0);
}

TEST(Retrieval, AnAnswerWithoutParagraphIsAnInputError) {
  const auto message = [](auto score, const char* answer) -> std::string {
    try {
      score("1", answer);
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message(retrieval, "12"),
            "An answer of a retrieval task is '12' and must name its paragraph, as in 'Paragraph 12'.");
  EXPECT_EQ(message(retrieval_zh, "Paragraph 12"),
            "An answer of a retrieval task is 'Paragraph 12' and must name its paragraph, as in '段落12'.");
}

}  // namespace
}  // namespace tandem::eval
