#include "eval/leval/leval.h"

#include <fmt/ranges.h>
#include <fstream>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "engine/common/error.h"
#include "engine/common/interrupt.h"
#include "eval/ruler_tasks/random.h"
#include "tests/eval/leval/leval_folder.h"
#include "tests/eval/report/fixtures.h"

namespace tandem::eval {
namespace {

using tandem::testing::LEvalFolder;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

class LEvalTest : public ::testing::Test {
 protected:
  LEvalTest() : model(load_model("tiny")) { options.data = folder.path(); }
  LEval read() const { return {options, model}; }
  std::string refused() const {
    try {
      read();
    } catch (const InputError& error) {
      return error.what();
    }
    return "nothing was refused";
  }
  std::string text_of(const std::string& task, std::uint32_t index) const {
    return model.tokenizer->decode(read().sample(task, 0, index).prompt);
  }

  LEvalFolder folder;
  Model model;
  FileChoice options;
};

TEST_F(LEvalTest, EveryQuestionIsASampleWithItsDocument) {
  folder.add("tpo", "exam", {"The first text.", "The second text."}, {"What?\nA. x\nB. y", "Why?"}, {"A", "B. y"});
  const LEval benchmark = read();
  EXPECT_EQ(benchmark.samples_of("tpo"), 4u);
  EXPECT_THAT(text_of("tpo", 1), AllOf(HasSubstr("The first text."), HasSubstr("Why?."), EndsWith("\nAnswer:")));
  EXPECT_THAT(text_of("tpo", 2),
              AllOf(HasSubstr("The second text."), HasSubstr("What?\nA. x"), Not(HasSubstr("first text"))));
  EXPECT_THAT(benchmark.sample("tpo", 0, 3).answers, ElementsAre("B. y"));
  EXPECT_EQ(benchmark.sample("tpo", 0, 3).max_new_tokens, 512u);
  EXPECT_EQ(benchmark.sample("tpo", 0, 1).document, 0u);
  EXPECT_EQ(benchmark.sample("tpo", 0, 2).document, 1u);
  options.samples = 3;
  EXPECT_EQ(read().samples_of("tpo"), 3u);
  folder.add("gsm100", "exam", {"Worked examples."}, {"How many?"}, {"4"});
  folder.add("gsm100", "exam", {"Worked examples."}, {"How long?"}, {"5"}, /*append=*/true);
  EXPECT_EQ(read().sample("gsm100", 0, 1).document, std::nullopt) << "a part of the task";
}

TEST_F(LEvalTest, PromptsHaveTheFormOfTheirTask) {
  folder.add("financial_qa", "f1", {"A {report}."}, {"How much?"}, {"three dollars and a half"});
  folder.add("gsm100", "exam", {"Question: 1+1? The answer is 2."}, {"Question: 2+2?"}, {"4"});
  EXPECT_THAT(text_of("financial_qa", 0),
              AllOf(HasSubstr("Document is as follows. A {report}. Instruction: How much? "),
                    EndsWith("Answer this question with 5 words.")));
  EXPECT_THAT(text_of("gsm100", 0), AllOf(StartsWith("Given several question answer pairs"),
                                          EndsWith("Question: 1+1? The answer is 2.\n\nQuestion: 2+2?")));
  options.template_of = ChatFormat::llama2;
  EXPECT_THAT(text_of("financial_qa", 0),
              AllOf(StartsWith("[INST]<<SYS>>\nNow you are given"), EndsWith("5 words.[/INST]")));
  EXPECT_THAT(text_of("gsm100", 0), AllOf(StartsWith("[INST]<<SYS>>\nGiven"), Not(HasSubstr("[/INST]"))));
}

TEST_F(LEvalTest, BracesAreFormattedAsUpstreamFormatsThem) {
  const auto asked = [&](const std::string& document) {
    folder.add("gsm100", "exam", {document}, {"Why?"}, {"4"});
    const std::string text = text_of("gsm100", 0);
    return text.substr(text.find("answer is _ . ") + 14);
  };
  EXPECT_EQ(asked("a {{b}} c"), "a {b} c\n\nWhy?");
  EXPECT_EQ(asked("a {b} {{c}}"), "a {b} {{c}}\n\nWhy?") << "refused as a whole";
  EXPECT_EQ(asked("a } {{c}}"), "a } {{c}}\n\nWhy?");
  EXPECT_EQ(asked("a {{ {inst}"), "a { Why?\n\nWhy?");
  EXPECT_EQ(asked("open {"), "open {\n\nWhy?");
}

TEST_F(LEvalTest, ALongDocumentKeepsItsFirstWords) {
  std::string words = "begin";
  for (int i = 0; i < 3000; ++i) words += " w" + std::to_string(i);
  words += " end";
  const Tokenizer& tokenizer = *model.tokenizer;
  const std::string cut = cut_leval_document(tokenizer, words, 1500, false);
  EXPECT_LE(tokenizer.encode(cut, true).size(), 1500u);
  EXPECT_TRUE(words.starts_with(cut + " "));
  const auto kept = std::count(cut.begin(), cut.end(), ' ') + 1;
  EXPECT_EQ((1500 - kept) % 250, 0) << kept;  // max_length words, then 250 fewer each time
  const std::string last = cut_leval_document(tokenizer, words, 1500, true);
  EXPECT_TRUE(words.ends_with(" " + last));
  EXPECT_LE(tokenizer.encode(last, true).size(), 1500u);
  EXPECT_EQ(cut_leval_document(tokenizer, "short", 1500, false), "short");
  // Below 0 words upstream's slice drops as many from the end; one long word ends empty.
  EXPECT_EQ(cut_leval_document(tokenizer, std::string(4000, 'x'), 100, false), "");
}

/// Upstream's loop as it is written: the whole document is encoded each time.
std::string cut_as_upstream(const Tokenizer& tokenizer, const std::string& document, std::int64_t most, bool from_end) {
  const auto split = [](const std::string& text) {
    std::vector<std::string> words(1);
    for (const char c : text) c == ' ' ? words.emplace_back() : words.back() += c;
    return words;
  };
  std::vector<std::string> words = split(document);
  std::string text = document;
  for (std::int64_t kept = most; std::int64_t(tokenizer.encode(text, true).size()) > most; kept -= 250) {
    const auto n = std::int64_t(words.size());
    const auto place = [&](std::int64_t i) { return std::clamp<std::int64_t>(i < 0 ? i + n : i, 0, n); };
    const std::int64_t first = from_end ? place(-kept) : 0, last = from_end ? n : place(kept);
    words = first < last ? std::vector(words.begin() + first, words.begin() + last) : std::vector<std::string>();
    text = fmt::format("{}", fmt::join(words, " "));
    if (text.empty()) break;
  }
  return text;
}

TEST_F(LEvalTest, CutsAreThoseOfEncodingTheWholeEachTime) {
  const Tokenizer& tokenizer = *model.tokenizer;
  Random random(5);
  const std::vector<std::string> pieces = {"the",  "a",     "of barns",      "",        "",      "  ",
                                           "\n\n", "12345", "\u00e9t\u00e9", "x_y(z);", "=====", "\u4e2d\u6587"};
  for (int round = 0; round < 60; ++round) {
    const std::uint64_t spaces = random.below(3), kinds = 1 + random.below(pieces.size());
    std::string text;
    for (std::uint64_t i = 0, n = random.below(6000); i < n; ++i) {
      text += pieces[random.below(kinds)];
      if (random.below(4) >= spaces) text += ' ';
    }
    const auto most = static_cast<std::uint32_t>(50 + random.below(2000));
    for (const bool from_end : {false, true}) {
      std::size_t tokens = 0;
      const std::string expected = cut_as_upstream(tokenizer, text, most, from_end);
      EXPECT_EQ(cut_leval_document(tokenizer, text, most, from_end, &tokens), expected) << round;
      EXPECT_EQ(tokens, tokenizer.encode(expected, true).size());
    }
  }
}

TEST_F(LEvalTest, ScoresAreByTaskAndKind) {
  folder.add("tpo", "exam", {"d"}, {"q"}, {"B"});
  folder.add("financial_qa", "f1", {"d"}, {"q"}, {"the red barn"});
  folder.add("gov_report_summ", "rouge", {"d"}, {"q"}, {"one two three four"});
  const LEval benchmark = read();
  const auto score = [&](const char* task, const std::string& said) {
    const std::vector<DatasetSample> samples = {benchmark.sample(task, 0, 0)};
    const std::vector<std::string> predictions = {said};
    return benchmark.scores(samples, predictions).at(0).value;
  };
  EXPECT_EQ(score("tpo", "It is B."), 1);
  EXPECT_EQ(score("tpo", "C"), 0);
  EXPECT_DOUBLE_EQ(score("financial_qa", "a barn"), 2.0 / 3);
  EXPECT_DOUBLE_EQ(score("gov_report_summ", "one three five"), 2 * (2.0 / 3) * (2.0 / 4) / (2.0 / 3 + 2.0 / 4));
}

TEST_F(LEvalTest, DocumentsForAJudgeAreNotAsked) {
  folder.add("financial_qa", "LLM", {"for a judge"}, {"q"}, {"x"});
  EXPECT_THAT(refused(), HasSubstr("no question that is scored without a judge"));
  folder.add("financial_qa", "f1", {"for a score"}, {"q"}, {"x"}, /*append=*/true);
  EXPECT_EQ(read().samples_of("financial_qa"), 1u);
  EXPECT_THAT(text_of("financial_qa", 0), HasSubstr("for a score"));
}

TEST_F(LEvalTest, WhatIsNotReadWithoutTasksIsListed) {
  folder.add("tpo", "exam", {"d"}, {"q"}, {"A"});
  folder.write("Closed-ended-tasks/sci_fi.jsonl", "said to be left out");
  folder.write("financial_qa.jsonl", "read, since no other is there");
  EXPECT_THAT(unread_leval(folder.path()), IsEmpty());
  for (const char* name : {"Open-ended-tasks/legal_contract.jsonl", "Open-ended-tasks/tpo.jsonl", "tpo.jsonl", "n.txt"})
    folder.write(name, "not read");
  EXPECT_THAT(unread_leval(folder.path()),
              ElementsAre(folder.path() / "Open-ended-tasks/legal_contract.jsonl",
                          folder.path() / "Open-ended-tasks/tpo.jsonl", folder.path() / "tpo.jsonl"))
      << "of no data set, of the other kind, and one of two";
}

TEST_F(LEvalTest, AFileIsOfOneKind) {
  folder.add("financial_qa", "LLM", {"for a judge"}, {"q"}, {"x"});
  folder.add("financial_qa", "f1", {"d"}, {"q"}, {"x"}, /*append=*/true);
  folder.add("financial_qa", "rouge", {"d"}, {"q"}, {"x"}, /*append=*/true);
  EXPECT_THAT(refused(), AllOf(HasSubstr("line 3"), HasSubstr("'evaluation' is 'rouge'"), HasSubstr("one kind")));
}

TEST_F(LEvalTest, WhatCannotBeIsToldWithFileAndLine) {
  EXPECT_THAT(refused(), AllOf(HasSubstr("holds none of L-Eval's files"), HasSubstr("LEval-data/")));
  folder.add("tpo", "exam", {"d"}, {"q"}, {"A"});
  options.tasks = {"quality"};
  EXPECT_THAT(refused(), AllOf(HasSubstr("there is no 'quality.jsonl'"), HasSubstr("holds tpo")));
  options.tasks = {"sci_fi"};
  EXPECT_THAT(refused(), HasSubstr("one prompt for two answers"));
  options.tasks = {"tpu"};
  EXPECT_THAT(refused(), HasSubstr("Did you mean 'tpo'?"));
  options.tasks = {};
  for (const auto& [line, says] :
       {std::pair{"{", "line 1: not valid JSON from byte 2"},
        std::pair{R"({"input": "d", "instructions": ["q"], "outputs": [], "evaluation": "exam"})",
                  "line 1: 'instructions' are 1, but 'outputs' 0"},
        std::pair{R"({"input": "d", "instructions": ["q"], "outputs": ["A"], "evaluation": "f1"})",
                  "'evaluation' is 'f1', where tpo has exam"},
        std::pair{R"({"input": "d", "instructions": ["q"], "outputs": [" "], "evaluation": "exam"})",
                  "answer 1 in 'outputs' has no word"},
        std::pair{R"({"instructions": ["q"], "outputs": ["A"], "evaluation": "exam"})", "'input' is missing"},
        std::pair{R"({"input": 1, "instructions": ["q"], "outputs": ["A"], "evaluation": "exam"})",
                  "'input' must hold text"},
        std::pair{"\n", "holds no sample"}}) {
    folder.write("Closed-ended-tasks/tpo.jsonl", line);
    EXPECT_THAT(refused(), AllOf(HasSubstr("tpo.jsonl"), HasSubstr(says)));
  }
}

TEST_F(LEvalTest, RoomForAnswersIsAskedFor) {
  std::string words = "w";
  for (int i = 0; i < 4000; ++i) words += " w";
  folder.add("tpo", "exam", {words}, {"q"}, {"A"});
  EXPECT_LE(read().max_length(), model.config.max_positions - 512 - 40);
  EXPECT_GE(read().max_length(), model.config.max_positions - 1024) << "the question is short";
  options.max_length = 500;
  EXPECT_GE(read().longest_prompt(), read().sample("tpo", 0, 0).prompt.size());
  words = "w";
  while (model.tokenizer->encode(words, true).size() < model.config.max_positions - 500) words += " w w w w w w w w";
  folder.add("tpo", "exam", {words}, {"q"}, {"A"});
  options.max_length = model.config.max_positions;
  EXPECT_THAT(refused(), AllOf(HasSubstr("Question 1 of tpo"), HasSubstr("lower --max-length")));
  options.max_length = 1;
  EXPECT_THAT(refused(), HasSubstr("--max-length is 1"));
}

TEST_F(LEvalTest, TheLongestQuestionHasRoomBesideADocument) {
  std::string words = "w", question = "Why";
  for (int i = 0; i < 6000; ++i) words += " w";
  for (int i = 0; i < 600; ++i) question += " so so";
  folder.write("Open-ended-tasks/paper_assistant.jsonl", nlohmann::json({{"input", words},
                                                                         {"instructions", {"Why?", question}},
                                                                         {"outputs", {"Because of it.", "No"}},
                                                                         {"evaluation", "rouge"}})
                                                             .dump());
  const LEval both = read();
  EXPECT_LT(both.max_length(), model.config.max_positions - 512 - 1200);
  EXPECT_LE(both.sample("paper_assistant", 0, 1).prompt.size() + 512, model.config.max_positions);
  EXPECT_LE(both.longest_prompt() + 512, model.config.max_positions);
  options.samples = 1;
  EXPECT_GT(read().max_length(), both.max_length()) << "only what is asked takes room";
  options.samples = 0;
  model.config.max_positions = 1700;
  EXPECT_THAT(refused(), AllOf(HasSubstr("The longest question has"), HasSubstr("1700 positions")));
}

TEST_F(LEvalTest, ReadingTellsHowFarItIsAndCanBeInterrupted) {
  folder.add("tpo", "exam", {"d", "e", "f"}, {"q", "r"}, {"A", "B"});
  std::vector<std::uint64_t> seen;
  options.progress = [&](std::uint64_t done, std::uint64_t total) {
    EXPECT_EQ(total, 3u);
    seen.push_back(done);
  };
  read();
  EXPECT_THAT(seen, ElementsAre(0u, 1u, 2u, 3u));
  const auto stopped = [&] {
    interrupt();
    try {
      read();
    } catch (const Interrupted&) {
      _exit(42);
    }
    _exit(0);
  };
  EXPECT_EXIT(stopped(), ::testing::ExitedWithCode(42), "");
}

TEST_F(LEvalTest, TheManifestSaysWhatScoresDependOn) {
  folder.add("tpo", "exam", {"d"}, {"q", "r"}, {"A", "B"});
  folder.add("financial_qa", "f1", {"d"}, {"q"}, {"x"});
  Manifest manifest;
  manifest.tokenizer_hash = "abc";
  options.max_length = 1000;
  read().fill_manifest({"full", "hgca"}, manifest);
  EXPECT_EQ(manifest.benchmark, "leval");
  EXPECT_THAT(manifest.tasks, ElementsAre("tpo", "financial_qa"));
  EXPECT_THAT(manifest.task_samples, ElementsAre(2u, 1u));
  EXPECT_THAT(manifest.protocol_id, AllOf(HasSubstr("leval/v1+data:"), HasSubstr("+tok:abc+template:none"),
                                          HasSubstr("+length:first-words-1000+"), HasSubstr("budget:hgca=")));
  folder.add("financial_qa", "f1", {"d"}, {"q"}, {"y"});
  Manifest other;
  other.tokenizer_hash = "abc";
  read().fill_manifest({"full", "hgca"}, other);
  EXPECT_NE(other.protocol_id, manifest.protocol_id) << "other data";
}

TEST_F(LEvalTest, TheReportHasUpstreamsFigures) {
  folder.add("tpo", "exam", {"d"}, {"q", "r", "s"}, {"A", "B", "C"});
  folder.add("gov_report_summ", "rouge", {"d", "e"}, {"q"}, {"one two three four"});
  const LEval benchmark = read();
  const TemporaryFolder root;
  Manifest manifest = example_manifest();
  manifest.clock.clear();
  benchmark.fill_manifest({"full", "streaming"}, manifest);
  RunFolder run = begun_run(root / "run", manifest);
  for (const std::string& task : benchmark.tasks()) {
    for (std::uint32_t i = 0; i < benchmark.samples_of(task); ++i) {
      for (const char* method : {"full", "streaming"}) {
        if (std::string(method) == "streaming" && task == "gov_report_summ" && i == 1) continue;  // not there yet
        SampleResult sample = example_sample(i, method);
        sample.benchmark = "leval";
        sample.task = task;
        sample.length = 0;
        sample.prediction = task == "tpo" ? "A" : i == 0 ? "one two three four" : "four";
        const std::vector<DatasetSample> asked = {benchmark.sample(task, 0, i)};
        sample.score = benchmark.scores(asked, std::vector{sample.prediction}).at(0).value;
        run.append(sample);
      }
    }
  }
  const Summary summary = summarise(run);
  const std::string text = benchmark.own_section(run, summary, true);
  EXPECT_THAT(text, HasSubstr("| tpo | exact_match | 3 | 33.33 | 33.33 |"));
  // 1 and 2 / 5; pairs 1 and 0: means 70, 50 and 70.
  EXPECT_THAT(text, HasSubstr("| gov_report_summ | rouge1 | 2 | 70.00 | - |"));
  EXPECT_THAT(text, HasSubstr("|  | rouge2 |  | 50.00 | - |"));
  EXPECT_THAT(text, HasSubstr("|  | geometric_mean |  | 62.57 | - |"));
  EXPECT_THAT(benchmark.own_json(run, summarise(run)),
              AllOf(HasSubstr("\"exact_match\": 33.3333"), HasSubstr("\"geometric_mean\": 62.5732")));
}

// Of four questions the first and the fourth are of the same place: right ones there are (100 + 0 + 0) / 3, where the
// plain mean is 50.
TEST_F(LEvalTest, TopicsAreOfThreePlaces) {
  folder.add("topic_retrieval_longchat", "exam", {"d"}, {"q", "r", "s", "t"}, {"sea", "sky", "sun", "ice"});
  std::string words = "w";
  for (int i = 0; i < 3000; ++i) words += " w";
  folder.add("tpo", "exam", {words, "short", std::string(4000, 'x')}, {"q"}, {"A"});
  options.max_length = 1000;
  const LEval benchmark = read();
  const TemporaryFolder root;
  Manifest manifest = example_manifest();
  manifest.clock.clear();
  benchmark.fill_manifest({"full"}, manifest);
  RunFolder run = begun_run(root / "run", manifest);
  for (std::uint32_t i = 0; i < 4; ++i) {
    SampleResult sample = example_sample(i, "full");
    sample.benchmark = "leval";
    sample.task = "topic_retrieval_longchat";
    sample.length = 0;
    sample.score = i == 0 || i == 3 ? 1 : 0;
    run.append(sample);
  }
  EXPECT_THAT(benchmark.own_json(run, summarise(run)), HasSubstr("\"exact_match\": 33.3333"));
  const std::string text = benchmark.own_section(run, summarise(run), true);
  EXPECT_THAT(text, HasSubstr("2 of 4 documents were cut to 1000 tokens; of 1 of them nothing is left."));
}

}  // namespace
}  // namespace tandem::eval
