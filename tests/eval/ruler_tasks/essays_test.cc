// Needles between the sentences of a text from a file.
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/common/error.h"
#include "eval/ruler_tasks/texts.h"
#include "eval/ruler_tasks/wording.h"
#include "eval/scoring/python_text.h"
#include "tests/eval/ruler_tasks/prompts.h"
#include "tests/test_data.h"

namespace tandem::eval {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr const char* kText =
    "I met Mr. Smith\n\nat noon.  He was (of course) late.) \"Was he?\" she asked. J. Doe said: no! So it\tgoes, i.e. "
    "it "
    "ends. Yes and";

std::vector<std::string> sentences_of(const Essays& essays) {
  std::vector<std::string> sentences;
  for (std::size_t i = 0; i < essays.sentences.size(); ++i) {
    const std::size_t end = i + 1 < essays.sentences.size() ? essays.sentences[i + 1] : essays.words.size();
    std::string text;
    for (std::size_t w = essays.sentences[i]; w < end; ++w) text += (text.empty() ? "" : " ") + essays.words[w];
    sentences.push_back(text);
  }
  return sentences;
}

TEST(EssaysFile, WordsAndSentences) {
  EXPECT_THAT(sentences_of(parse_essays(kText, "e.txt")),
              ElementsAre("I met Mr. Smith at noon.", "He was (of course) late.)", "\"Was he?\" she asked.",
                          "J. Doe said: no!", "So it goes, i.e. it ends.", "Yes and"));
  EXPECT_EQ(parse_essays("{\"text\": \"One. Two.\"}", "e.json").words,
            parse_essays("\xef\xbb\xbfOne.\nTwo.", "e").words);
  EXPECT_NE(parse_essays("One.", "e").hash, parse_essays("One. ", "e").hash) << "the file's bytes are named";
}

TEST(EssaysFile, RepeatsWithoutEnd) {
  const Essays essays = parse_essays("A b. C d e. F", "e");  // sentences at words 0, 2 and 5 of 6
  EXPECT_EQ(essays.word(8), "C");
  const std::vector<std::uint64_t> before = {0, 1, 1, 2, 2, 2, 3, 4, 4, 5};
  for (std::uint64_t n = 0; n < before.size(); ++n) EXPECT_EQ(essays.sentences_before(n), before[n]) << n;
  for (const auto& [sentence, word] : std::map<std::uint64_t, std::uint64_t>{{0, 0}, {2, 5}, {3, 6}, {4, 8}, {6, 12}})
    EXPECT_EQ(essays.first_word(sentence), word);
}

TEST(EssaysFile, WrongFilesAreSentences) {
  const auto expect = [](const char* bytes, const char* file, const char* message) {
    EXPECT_THAT([&] { parse_essays(bytes, file); }, ThrowsMessage<InputError>(HasSubstr(message))) << bytes;
  };
  expect("{\"text\": \"a", "e.json", "'e.json' are not a JSON object with a field 'text'");
  expect("[]", "e.json", "'e.json' are not a JSON object with a field 'text'");
  expect("{}", "e.json", "'e.json' have no field 'text'");
  expect("{\"text\": 3}", "e.json", "'text' of the essays 'e.json' must be a string");
  expect("{\"text\": \" \\n\"}", "e.json", "'e.json' hold no word");
  expect(" \n", "e.txt", "'e.txt' hold no word");
  expect(std::string(10001, 'x').c_str(), "e.txt", "'e.txt' have a word of 10001 bytes, \"xxxx");
  expect("caf\xe9", "e.txt", "'e.txt' are not UTF-8 text");
  EXPECT_THROW(read_essays("/nowhere/e.txt"), InputError);
  EXPECT_THROW(read_essays("/dev/null"), InputError);
}

const std::vector<std::string>& with_essays() {
  static const std::vector<std::string> tasks = {"niah_single_2", "niah_single_3", "niah_multikey_1", "niah_multivalue",
                                                 "niah_multiquery"};
  return tasks;
}

RulerTexts texts_of(const std::string& text) {
  RulerTexts texts;
  texts.essays = std::make_shared<const Essays>(parse_essays(text, "e.txt"));
  return texts;
}

/// The context's needles taken out again: words, and how many words stand before each needle.
struct Split {
  std::vector<std::string> words;
  std::vector<std::size_t> needles;
};

Split split(const std::string& prompt) {
  const std::size_t begin = prompt.find('\n') + 1;
  std::string hay = prompt.substr(begin, prompt.rfind('\n') - begin);
  Split result;
  for (std::size_t at = 0; (at = hay.find("The secret ", at)) != std::string::npos;) {
    const std::size_t end = hay.find('.', at) + 1;
    result.needles.push_back(split_words(std::string_view(hay).substr(0, at)).size());
    hay.erase(at, end - at);
  }
  for (const std::string_view word : split_words(hay)) result.words.emplace_back(word);
  return result;
}

TEST(EssayHaystack, IsTheTextRepeatedWithNeedlesBetweenSentences) {
  const RulerTexts texts = texts_of(kText);
  const Essays& essays = *texts.essays;
  for (const std::string& task : with_essays()) {
    for (std::uint32_t index = 0; index < 8; ++index) {
      const RulerSample sample = make_ruler_sample(task, 2048, index, 7, count_words, texts);
      const Split hay = split(sample.prompt);
      ASSERT_EQ(hay.words.size(), sample.haystack_units);
      ASSERT_GT(hay.words.size(), 10 * essays.words.size()) << "repeated as often as the length needs";
      for (std::size_t i = 0; i < hay.words.size(); ++i) ASSERT_EQ(hay.words[i], essays.word(i));
      EXPECT_EQ(hay.needles.size(), needles_in(sample.prompt).size());
      for (const std::size_t at : hay.needles) {
        const auto in_text = static_cast<std::uint32_t>(at % essays.words.size());
        EXPECT_TRUE(at == hay.words.size() ||
                    std::binary_search(essays.sentences.begin(), essays.sentences.end(), in_text))
            << "a needle before word " << at;
      }
      EXPECT_EQ(occurrences(sample.prompt, "  "), 0u);
    }
  }
}

TEST(EssayHaystack, FillsEveryLengthToTheLastWord) {
  const RulerTexts texts = texts_of(kText);
  for (const std::string& task : with_essays()) {
    for (const auto& [name, count] : counters()) {
      for (const std::uint32_t length : {4000u, 8192u}) {
        const RulerSample sample = make_ruler_sample(task, length, 1, 7, count, texts);
        EXPECT_LE(sample.prompt_tokens + sample.max_new_tokens, length) << name;
        const RulerSample more = make_ruler_sample_with(task, length, 1, 7, count, sample.haystack_units + 1, texts);
        EXPECT_GT(more.prompt_tokens + more.max_new_tokens, length) << name;
      }
    }
  }
}

TEST(EssayHaystack, NeedlesAndQuestionsStayAndOtherTasksDoNotChange) {
  const RulerTexts texts = texts_of(kText);
  for (const RulerTask& task : ruler_tasks()) {
    const RulerSample with = make_ruler_sample(task.name, 2048, 3, 7, count_words, texts),
                      without = make_ruler_sample(task.name, 2048, 3, 7, count_words);
    EXPECT_EQ(with.answers, without.answers);
    EXPECT_EQ(with.prompt == without.prompt, task.haystack != RulerTask::Haystack::prose) << task.name;
  }
}

TEST(EssayHaystack, WordsWithoutTokensEndInASentence) {
  const TokenCounter count = [](std::string_view text) {
    return static_cast<std::uint32_t>(text.size() - occurrences(text, "\xe2\x80\x8b") * 4);  // and its space
  };
  EXPECT_THAT([&] { make_ruler_sample("niah_single_2", 2048, 0, 7, count, texts_of("\xe2\x80\x8b \xe2\x80\x8b")); },
              ThrowsMessage<InputError>(HasSubstr("less than one token each")));
}

TEST(EssayHaystack, UpstreamsEssays) {
  const auto file = tandem::testing::test_data("ruler/PaulGrahamEssays.json");
  if (file.empty()) GTEST_SKIP() << tandem::testing::missing_test_data("ruler/PaulGrahamEssays.json");
  RulerTexts texts;
  texts.essays = std::make_shared<const Essays>(read_essays(file));
  EXPECT_GT(texts.essays->words.size(), 400000u);
  const double mean =
      static_cast<double>(texts.essays->words.size()) / static_cast<double>(texts.essays->sentences.size());
  EXPECT_GT(mean, 10) << "words of a sentence";
  EXPECT_LT(mean, 40);
  const RulerSample sample = make_ruler_sample("niah_multikey_1", 131072, 0, 7, count_words, texts);
  EXPECT_EQ(sample.prompt_tokens + sample.max_new_tokens, 131072u);
  EXPECT_EQ(occurrences(sample.prompt, "The secret number for "), 5u) << "four needles and the answer's beginning";
  EXPECT_EQ(occurrences(sample.prompt, sample.answers[0]), 1u);
}

}  // namespace
}  // namespace tandem::eval
