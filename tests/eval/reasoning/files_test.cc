#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>

#include "engine/common/error.h"
#include "eval/answers/math_answer.h"
#include "eval/reasoning/reasoning.h"
#include "tests/eval/reasoning/reasoning_folder.h"
#include "tests/test_data.h"

namespace tandem::eval {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::ReasoningFolder;

std::string refused_file(std::string_view text, AnswerKind kind) {
  try {
    parse_reasoning(text, kind, "x.jsonl");
  } catch (const InputError& error) {
    return error.what();
  }
  return "nothing was refused";
}

std::string refused_data(const std::string& data, std::vector<std::string> tasks = {}) {
  try {
    read_reasoning(data, tasks);
  } catch (const InputError& error) {
    return error.what();
  }
  return "nothing was refused";
}

TEST(ReasoningFiles, AnswersAreTheFinalOnes) {
  const std::string text =
      ReasoningFolder::record("a", "16 - 7 = <<16-7=9>>9\n#### 1,009") + "\r\n\n" + ReasoningFolder::record("b", 18);
  const auto problems = parse_reasoning(text, AnswerKind::number, "x.jsonl");
  ASSERT_EQ(problems.size(), 2u);
  EXPECT_EQ(problems[0].answer, "1,009");
  EXPECT_EQ(problems[1].answer, "18");
  EXPECT_EQ(problems[1].prompt, "b");
  EXPECT_EQ(parse_reasoning(ReasoningFolder::record("a", "\\boxed{D}"), AnswerKind::letter, "x")[0].answer, "D");
  EXPECT_EQ(parse_reasoning(ReasoningFolder::record("a", 73), AnswerKind::integer, "x")[0].answer, "73");
  EXPECT_EQ(parse_reasoning(ReasoningFolder::record("a", "\\boxed{1}"), AnswerKind::expression, "x")[0].answer,
            "\\boxed{1}")
      << "MATH's answers stand alone";
}

TEST(ReasoningFiles, BadLinesAreNamed) {
  const auto record = [](const nlohmann::json& answer) { return ReasoningFolder::record("a", answer); };
  EXPECT_EQ(refused_file("\n{", AnswerKind::number), "x.jsonl, line 2: not valid JSON from byte 2 of 1 on.");
  EXPECT_THAT(refused_file("[]", AnswerKind::number), HasSubstr("not a JSON object"));
  EXPECT_THAT(refused_file("{\"answer\": 1}", AnswerKind::number), HasSubstr("'prompt' is missing"));
  EXPECT_THAT(refused_file(R"({"prompt": "", "answer": 1})", AnswerKind::number), HasSubstr("'prompt' is empty"));
  EXPECT_THAT(refused_file(R"({"prompt": "a"})", AnswerKind::number), HasSubstr("'answer' is missing"));
  EXPECT_THAT(refused_file(record(nullptr), AnswerKind::number), HasSubstr("'answer' must hold text or a number"));
  EXPECT_THAT(refused_file(record("#### many"), AnswerKind::number), HasSubstr("no number, as in '#### 18'"));
  EXPECT_THAT(refused_file(record("1/2"), AnswerKind::integer), HasSubstr("no whole number"));
  for (const nlohmann::json& no_number : {nlohmann::json("5 - 3"), nlohmann::json("2^10"), nlohmann::json("3 million"),
                                          nlohmann::json("18 and a half"), nlohmann::json("it is 18")})
    EXPECT_THAT(refused_file(record(no_number), AnswerKind::number), HasSubstr("no number, as in '#### 18'"))
        << no_number;
  EXPECT_THAT(refused_file(record("1/2"), AnswerKind::number), HasSubstr("no number")) << "no rule would find it";
  EXPECT_EQ(parse_reasoning(record("$1,234.50"), AnswerKind::number, "x")[0].answer, "$1,234.50");
  EXPECT_THAT(refused_file(record(1e20), AnswerKind::number), HasSubstr("no number"));
  EXPECT_THAT(refused_file(record("   "), AnswerKind::expression), HasSubstr("no answer"));
  EXPECT_THAT(refused_file(record("\\boxed{E}"), AnswerKind::letter), HasSubstr("no choice from A to D"));
  EXPECT_THAT(refused_file(record("\\text{ cm}"), AnswerKind::expression), HasSubstr("nothing was refused"));
  EXPECT_THAT(refused_file(record(""), AnswerKind::expression), HasSubstr("no answer"));
  EXPECT_THAT(refused_file("\n\n", AnswerKind::expression), HasSubstr("holds no sample"));
}

TEST(ReasoningFiles, AProblemThatIsThereTwiceIsRefused) {
  const std::string a = ReasoningFolder::record("a", 1), b = ReasoningFolder::record("b", 1);
  EXPECT_EQ(refused_file(b + "\n" + a + b + a, AnswerKind::number),
            "x.jsonl, line 4: 'prompt' is that of line 1: as two problems it would count twice; remove one of them.");
  EXPECT_THAT(refused_file(a + ReasoningFolder::record("a", 2), AnswerKind::number), HasSubstr("is that of line 1"));
  const std::string almost = ReasoningFolder::record("a ", 1) + ReasoningFolder::record("A", 1);
  EXPECT_EQ(parse_reasoning(a + b + almost, AnswerKind::number, "x").size(), 4u) << "another text, another problem";
}

TEST(ReasoningFiles, WhatAFolderHoldsBesidesIsListed) {
  const ReasoningFolder folder;
  folder.add("aime24", 1);
  EXPECT_THAT(unread_reasoning(folder.path()), IsEmpty());
  for (const char* name : {"notes.jsonl", "AIME25.jsonl", "gsm8k.txt"}) folder.write(name, "not read");
  EXPECT_THAT(unread_reasoning(folder.path()), ElementsAre(folder.file("AIME25.jsonl"), folder.file("notes.jsonl")));
  EXPECT_THAT(unread_reasoning(folder.file("aime24.jsonl")), IsEmpty()) << "files that are given are read";
  std::vector<std::string> tasks;
  EXPECT_EQ(read_reasoning(folder.path(), tasks).size(), 1u) << "and not refused";
}

TEST(ReasoningFiles, AFolderAFileOrSeveral) {
  const ReasoningFolder folder;
  folder.add("aime24", 2);
  folder.add("math500", 3);
  folder.write("notes.jsonl", "not read");
  folder.write("gsm8k.txt", "not read");
  std::vector<std::string> tasks;
  EXPECT_EQ(read_reasoning(folder.path(), tasks).size(), 2u);
  EXPECT_THAT(tasks, ElementsAre("aime24", "math500"));
  tasks = {"math500"};
  const auto one = read_reasoning(folder.path(), tasks);
  ASSERT_EQ(one.size(), 1u);
  EXPECT_EQ(one.at("math500").problems.size(), 3u);
  EXPECT_EQ(one.at("math500").kind, AnswerKind::expression);
  tasks.clear();
  EXPECT_EQ(read_reasoning(folder.file("math500.jsonl") + "," + folder.file("aime24.jsonl"), tasks).size(), 2u);
  tasks.clear();
  folder.write("math,hard.jsonl", ReasoningFolder::record("a", "1"));
  read_reasoning(folder.file("math,hard.jsonl"), tasks);
  EXPECT_THAT(tasks, ElementsAre("math,hard"));
  const std::uint64_t before = one.at("math500").hash;
  folder.add("math500", 4);
  tasks = {"math500"};
  EXPECT_NE(read_reasoning(folder.path(), tasks).at("math500").hash, before);
}

TEST(ReasoningFiles, DataThatCannotBeUsedIsRefused) {
  const ReasoningFolder folder;
  EXPECT_THAT(refused_data(folder.path()), HasSubstr("holds no problems"));
  EXPECT_THAT(refused_data(folder.file("aime24.jsonl")), HasSubstr("there is no file or folder"));
  folder.add("aime24", 1);
  EXPECT_THAT(refused_data(folder.path(), {"aime25"}), HasSubstr("there is no 'aime25.jsonl'; --data holds aime24"));
  EXPECT_THAT(refused_data(folder.path(), {"poems"}), HasSubstr("does not say what its answers are"));
  EXPECT_THAT(refused_data(folder.file("aime24.jsonl") + ","), HasSubstr("there is no file or folder ''"));
  EXPECT_THAT(refused_data(folder.file("aime24.jsonl") + "," + folder.file("aime24.jsonl")), HasSubstr("two files"));
  EXPECT_THAT(refused_data(folder.path() + "," + folder.path()), HasSubstr("is a folder"));
  folder.write("notes.jsonl", ReasoningFolder::record("a", 1));
  EXPECT_THAT(refused_data(folder.file("notes.jsonl")), HasSubstr("does not say"));
  folder.write("gpqa.jsonl", "");
  EXPECT_THAT(refused_data(folder.path()), AllOf(HasSubstr("gpqa.jsonl"), HasSubstr("holds no sample")));
}

struct Published {
  const char* task;
  std::size_t problems;
};

class PublishedReasoning : public ::testing::TestWithParam<Published> {};

/// Every reference, boxed as a model would, is right for its own problem and wrong for every problem whose answer
/// differs.
TEST_P(PublishedReasoning, ReferencesAreRightForThemselvesAlone) {
  const std::string name = std::string("reasoning/") + GetParam().task + ".jsonl";
  const auto data = testing::test_data(name);
  if (data.empty()) GTEST_SKIP() << testing::missing_test_data(name);
  std::vector<std::string> tasks;
  const ReasoningFile file = read_reasoning(data.string(), tasks).at(GetParam().task);
  ASSERT_EQ(file.problems.size(), GetParam().problems);
  std::set<std::string> answers;
  for (const ReasoningProblem& problem : file.problems) {
    const Graded graded = grade_answer("So it is\n\n\\[\\boxed{" + problem.answer + "}\\]", problem.answer, file.kind);
    EXPECT_EQ(graded.score, 1) << problem.answer;
    answers.insert(problem.answer);
  }
  if (file.kind != AnswerKind::expression) return;
  // The pairs of references that Math-Verify calls equal, too: they differ in form or unit, or quirks make them equal.
  const std::set<std::pair<std::string, std::string>> expected = {
      {"(-2,1)", "-2,1"},    {"-2,1", "1,-2"},          {"0", "5x - 7y + 11z + 4 = 0"}, {"10,\\!080", "10080"},
      {"120", "120^\\circ"}, {"15", "15\\mbox{ cm}^2"}, {"2 \\sqrt{5}", "2\\sqrt{5}"},  {"30", "30^\\circ"},
      {"36", "36^\\circ"},   {"36", "\\$36"},           {"36^\\circ", "\\$36"},         {"40", "40_9"},
      {"5", "x=5"},          {"90", "90^\\circ"},       {"\\frac14", "\\frac{1}{4}"}};
  std::vector<std::pair<std::string, MathAnswer>> read;
  for (const std::string& answer : answers) read.emplace_back(answer, math_reference(answer));
  for (std::size_t i = 0; i < read.size(); ++i) {
    for (std::size_t j = i + 1; j < read.size(); ++j) {
      EXPECT_EQ(math_answers_equal(read[i].second, read[j].second), expected.contains({read[i].first, read[j].first}))
          << read[i].first << "   " << read[j].first;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Files, PublishedReasoning,
                         ::testing::Values(Published{"aime24", 30}, Published{"aime25", 30},
                                           Published{"gpqa_diamond", 198}, Published{"gsm8k", 1319},
                                           Published{"math500", 500}),
                         [](const ::testing::TestParamInfo<Published>& one) { return std::string(one.param.task); });

}  // namespace
}  // namespace tandem::eval
