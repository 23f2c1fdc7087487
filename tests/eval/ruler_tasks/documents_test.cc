// qa_1 and qa_2 with questions of files: prompts are read back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>

#include "engine/common/error.h"
#include "eval/ruler_tasks/texts.h"
#include "eval/ruler_tasks/wording.h"
#include "tests/eval/ruler_tasks/prompts.h"
#include "tests/eval/ruler_tasks/question_files.h"
#include "tests/test_data.h"

namespace tandem::eval {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

RulerTexts texts_of(const std::string& squad, const std::string& hotpot) {
  RulerTexts texts;
  if (!squad.empty()) texts.squad = std::make_shared<const QuestionSet>(parse_questions(squad, "s.json"));
  if (!hotpot.empty()) texts.hotpot = std::make_shared<const QuestionSet>(parse_questions(hotpot, "h.json"));
  return texts;
}

/// 6 articles of 5 paragraphs with a question each. Paragraphs name their article and number.
std::string large_squad() {
  std::string json = "{\"data\": [";
  for (int a = 0; a < 6; ++a) {
    json += std::string(a == 0 ? "" : ", ") + "{\"paragraphs\": [";
    for (int p = 0; p < 5; ++p) {
      const std::string name = "a" + std::to_string(a) + "p" + std::to_string(p);
      json += std::string(p == 0 ? "" : ", ") + "{\"context\": \"The paragraph " + name + " tells what " + name +
              " does.\", \"qas\": [{\"question\": \"What is " + name + "?\", \"answers\": [{\"text\": \"" + name +
              "\"}]}]}";
    }
    json += "]}";
  }
  return json + "]}";
}

/// Documents of a prompt in their order, checked to be numbered from 1.
std::vector<std::string> documents_in(const std::string& prompt) {
  std::vector<std::string> documents;
  std::size_t at = prompt.find("\n\nDocument 1:\n");
  while (at != std::string::npos) {
    const std::string head = "\n\nDocument " + std::to_string(documents.size() + 1) + ":\n";
    if (prompt.compare(at, head.size(), head) != 0) break;
    const std::size_t begin = at + head.size();
    at = prompt.find("\n\n", begin);
    documents.push_back(prompt.substr(begin, at - begin));
  }
  return documents;
}

std::string question_in(const std::string& prompt) {
  std::size_t at = prompt.rfind("\n\n");
  return between(prompt, "\n\nQuestion: ", " Answer:", at);
}

TEST(QuestionDocuments, AQuestionWithItsParagraphAmongOthers) {
  const RulerTexts texts = texts_of(large_squad(), "");
  std::set<std::string> asked;
  for (std::uint32_t index = 0; index < 30; ++index) {
    const RulerSample sample = make_ruler_sample_with("qa_1", 2048, index, 5, count_words, 9, texts);
    EXPECT_TRUE(sample.prompt.ends_with(" Answer:"));
    const std::vector<std::string> documents = documents_in(sample.prompt);
    ASSERT_EQ(documents.size(), 10u) << sample.prompt;
    EXPECT_EQ(std::set<std::string>(documents.begin(), documents.end()).size(), 10u) << "each once, while there are";
    const std::string question = question_in(sample.prompt), name = question.substr(8, 4);
    EXPECT_EQ(sample.answers, std::vector<std::string>{name});
    asked.insert(question);
    int own = 0, article = 0;
    for (const std::string& document : documents) {
      own += occurrences(document, name) > 0 ? 1 : 0;
      article += occurrences(document, name.substr(0, 3)) > 0 ? 1 : 0;
    }
    EXPECT_EQ(own, 1);
    EXPECT_EQ(article, 5) << "the other paragraphs of the article come first";
    ASSERT_TRUE(sample.depth);
    const std::size_t begin = sample.prompt.find("Document 1:"),
                      end = sample.prompt.rfind("\n\n" + ruler_wording()["qa/intro"]);
    EXPECT_NEAR(
        *sample.depth,
        static_cast<double>(sample.prompt.find("The paragraph " + name) - begin) / static_cast<double>(end - begin),
        0.05);
  }
  EXPECT_EQ(asked.size(), 30u) << "each question once";
  EXPECT_THAT([&] { make_ruler_sample("qa_1", 2048, 30, 5, count_words, texts); },
              ThrowsMessage<InputError>(HasSubstr("'s.json' are 30")));
  EXPECT_THAT([&] { check_ruler_samples("qa_1", 2048, 31, 5, count_words, texts); },
              ThrowsMessage<InputError>(HasSubstr("31 samples of qa_1 need more")));
}

TEST(QuestionDocuments, EveryLengthAsksTheSameAndIsFilled) {
  const RulerTexts texts = texts_of(large_squad(), kHotpot);
  for (const char* task : {"qa_1", "qa_2"}) {
    for (std::uint32_t index = 0; index < 2; ++index) {
      const std::string first = question_in(make_ruler_sample(task, 400, index, 5, count_words, texts).prompt);
      for (const std::uint32_t length : {700u, 4096u}) {
        const RulerSample sample = make_ruler_sample(task, length, index, 5, count_words, texts);
        EXPECT_EQ(question_in(sample.prompt), first);
        EXPECT_LE(sample.prompt_tokens + sample.max_new_tokens, length);
        const RulerSample more =
            make_ruler_sample_with(task, length, index, 5, count_words, sample.haystack_units + 1, texts);
        EXPECT_GT(more.prompt_tokens + more.max_new_tokens, length);
      }
    }
  }
}

TEST(QuestionDocuments, OnesOwnDocumentsNeverRepeat) {
  const RulerTexts texts = texts_of(kSquad, kHotpot);
  const RulerSample one = make_ruler_sample_with("qa_1", 4096, 0, 5, count_words, 100, texts);
  const auto documents = documents_in(one.prompt);
  ASSERT_EQ(documents.size(), 101u);
  std::map<std::string, int> times;
  for (const std::string& document : documents) ++times[document];
  EXPECT_EQ(times.size(), 4u);
  int once = 0;
  for (const auto& [document, n] : times) once += n == 1 ? 1 : 0;
  EXPECT_EQ(once, 1) << "the others start over, but not what is asked about";
}

TEST(QuestionDocuments, HotpotQuestionsKeepAllTheirParagraphs) {
  const RulerTexts texts = texts_of("", kHotpot);
  int known = 0;
  for (std::uint32_t index = 0; index < 2; ++index) {
    const RulerSample sample = make_ruler_sample_with("qa_2", 4096, index, 5, count_words, 0, texts);
    const auto documents = documents_in(sample.prompt);
    ASSERT_EQ(documents.size(), 2u);
    const bool ann = question_in(sample.prompt).starts_with("In which");
    EXPECT_THAT(documents, ::testing::Contains(HasSubstr(ann ? "Rome is in" : "Bob sings")));
    EXPECT_EQ(sample.answers[0], ann ? "Italy" : "Bob");
    EXPECT_EQ(sample.depth.has_value(), ann) << "the depth is known where the file says what supports the answer";
    known += ann ? 1 : 0;
  }
  EXPECT_EQ(known, 1);
}

TEST(QuestionDocuments, TheTaskWithoutAFileStaysOnMadeUpFacts) {
  const RulerTexts squad = texts_of(kSquad, ""), hotpot = texts_of("", kHotpot);
  const auto prompt = [](const char* task, const RulerTexts& texts) {
    return make_ruler_sample(task, 1024, 0, 5, count_words, texts).prompt;
  };
  EXPECT_NE(prompt("qa_1", squad), prompt("qa_1", {}));
  EXPECT_EQ(prompt("qa_2", squad), prompt("qa_2", {}));
  EXPECT_EQ(prompt("qa_1", hotpot), prompt("qa_1", {}));
  EXPECT_NE(prompt("qa_2", hotpot), prompt("qa_2", {}));
}

TEST(QuestionDocuments, ATooShortLengthNamesOneThatIsEnoughForAllSamples) {
  const auto file = tandem::testing::test_data("ruler/xquad.en.json");
  if (file.empty()) GTEST_SKIP() << tandem::testing::missing_test_data("ruler/xquad.en.json");
  RulerTexts texts;
  texts.squad = std::make_shared<const QuestionSet>(read_questions(file));
  try {
    check_ruler_samples("qa_1", 200, 100, 5, count_words, texts);
    FAIL();
  } catch (const InputError& error) {
    std::size_t at = 0;
    const auto enough =
        static_cast<std::uint32_t>(std::stoul(between(error.what(), "With this tokenizer ", " tokens", at)));
    EXPECT_NO_THROW(check_ruler_samples("qa_1", enough, 100, 5, count_words, texts));
    EXPECT_THROW(check_ruler_samples("qa_1", enough - 1, 100, 5, count_words, texts), InputError);
    for (const RulerSample& sample : make_ruler_samples("qa_1", enough + 300, 100, 5, count_words, texts)) {
      EXPECT_TRUE(std::any_of(sample.answers.begin(), sample.answers.end(), [&](const std::string& answer) {
        return sample.prompt.find(answer) != std::string::npos;
      }));
    }
  }
}

}  // namespace
}  // namespace tandem::eval
