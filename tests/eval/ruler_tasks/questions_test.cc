#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/common/error.h"
#include "eval/ruler_tasks/texts.h"
#include "tests/eval/ruler_tasks/question_files.h"
#include "tests/test_data.h"

namespace tandem::eval {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(QuestionsFile, SquadOfBothVersions) {
  const QuestionSet set = parse_questions(kSquad, "s.json");
  EXPECT_EQ(set.format, QuestionSet::Format::squad);
  EXPECT_THAT(set.documents, ElementsAre("Oak is hard.", "Elm bends.\nIt is old.", "Tin is soft.", "Gold is soft."));
  ASSERT_EQ(set.articles.size(), 2u);
  EXPECT_THAT(set.articles[0], ElementsAre(0u, 1u, 2u));
  EXPECT_THAT(set.articles[1], ElementsAre(3u, 0u)) << "a paragraph that stands twice is one document";
  ASSERT_EQ(set.questions.size(), 4u) << "without the impossible question and the one without answers";
  EXPECT_EQ(set.questions[0].text, "What is oak?");
  EXPECT_THAT(set.questions[0].answers, ElementsAre("hard", "Oak is hard")) << "each answer once";
  EXPECT_THAT(set.questions[1].documents, ElementsAre(1u));
  EXPECT_EQ(set.questions[3].article, 1u);
  EXPECT_EQ(set.questions[3].answer_in, 0u);
  EXPECT_EQ(parse_questions(kSquad, "t.json").hash, set.hash);
  EXPECT_NE(parse_questions(std::string(kSquad) + " ", "s.json").hash, set.hash);
}

TEST(QuestionsFile, Hotpot) {
  const QuestionSet set = parse_questions(kHotpot, "h.json");
  EXPECT_EQ(set.format, QuestionSet::Format::hotpot);
  ASSERT_EQ(set.questions.size(), 2u);
  EXPECT_THAT(set.documents, ElementsAre("Ann\nAnn was born. In Rome.", "Rome\nRome is in Italy.", "Bob\nBob sings."));
  EXPECT_THAT(set.questions[0].documents, ElementsAre(0u, 1u));
  EXPECT_THAT(set.questions[0].answers, ElementsAre("Italy"));
  EXPECT_EQ(set.questions[0].answer_in, 1u) << "the first that supports it";
  EXPECT_THAT(set.questions[1].documents, ElementsAre(2u, 0u));
  EXPECT_FALSE(set.questions[1].answer_in);
}

TEST(QuestionsFile, WrongFilesNameEntryAndField) {
  const auto expect = [](const std::string& bytes, const std::string& message) {
    EXPECT_THAT([&] { parse_questions(bytes, "q.json"); }, ThrowsMessage<InputError>(HasSubstr("'q.json'" + message)))
        << bytes;
  };
  const auto squad = [](const std::string& paragraph) {
    return "{\"data\": [{\"paragraphs\": []}, {\"paragraphs\": [" + paragraph + "]}]}";
  };
  const auto asked = [&](const std::string& question) {
    return squad("{\"context\": \"c\", \"qas\": [" + question + "]}");
  };
  expect("{", " are not valid JSON");
  expect("3", " are neither SQuAD's format");
  expect(std::string(1000, '['), " are nested more than 32 deep");
  expect("{}", ": the field 'data' is missing");
  expect("{\"data\": {}}", ", data: a list is expected");
  expect("{\"data\": [3]}", ", data[0]: an object is expected");
  expect("{\"data\": [{}]}", ", data[0]: the field 'paragraphs' is missing");
  expect(squad("{\"qas\": []}"), ", data[1].paragraphs[0]: the field 'context' is missing");
  expect(squad("{\"context\": 7, \"qas\": []}"), ", data[1].paragraphs[0].context: a string is expected");
  expect(squad("{\"context\": \" \", \"qas\": []}"), ", data[1].paragraphs[0].context: the text is empty");
  expect(squad("{\"context\": \"c\"}"), ", data[1].paragraphs[0]: the field 'qas' is missing");
  const std::string at = ", data[1].paragraphs[0].qas[0]";
  expect(asked("{\"answers\": []}"), at + ": the field 'question' is missing");
  expect(asked("{\"question\": \"q\"}"), at + ": the field 'answers' is missing");
  expect(asked("{\"question\": \"q\", \"answers\": \"a\"}"), at + ".answers: a list is expected");
  expect(asked("{\"question\": \"q\", \"answers\": [{}]}"), at + ".answers[0]: the field 'text' is missing");
  expect(asked("{\"question\": \"q\", \"answers\": [{\"text\": \"\"}]}"), at + ".answers[0].text: the text is empty");
  expect(asked("{\"question\": \"q\", \"answers\": [], \"is_impossible\": 1}"),
         at + ".is_impossible: true or false is expected");
  expect(asked("{\"question\": \"q\", \"answers\": []}"), " hold no question with an answer");
  expect(asked("{\"question\": \"q\", \"answers\": [{\"text\": \"a\"}]}"),
         " have no document for \"q\" to stand among");
  expect("[]", " hold no question with an answer");
  expect("[{\"question\": \"q\", \"context\": []}]", ", [0]: the field 'answer' is missing");
  expect("[{\"question\": \"q\", \"answer\": \"a\", \"context\": []}]", ", [0].context: at least one paragraph");
  expect("[{\"question\": \"q\", \"answer\": \"a\", \"context\": [[\"t\"]]}]",
         ", [0].context[0]: a list of a title and its sentences");
  expect("[{\"question\": \"q\", \"answer\": \"a\", \"context\": [[\"t\", [4]]]}]",
         ", [0].context[0][1][0]: a string is expected");
  expect("[{\"question\": \"q\", \"answer\": \"a\", \"supporting_facts\": [[]], \"context\": []}]",
         ", [0].supporting_facts[0]: a list of a title and a sentence's number");
}

TEST(QuestionsFile, XquadsEnglishPart) {
  const auto file = tandem::testing::test_data("ruler/xquad.en.json");
  if (file.empty()) GTEST_SKIP() << tandem::testing::missing_test_data("ruler/xquad.en.json");
  const QuestionSet set = read_questions(file);
  EXPECT_EQ(set.articles.size(), 48u);
  EXPECT_EQ(set.documents.size(), 240u);
  EXPECT_EQ(set.questions.size(), 1190u);
}

}  // namespace
}  // namespace tandem::eval
