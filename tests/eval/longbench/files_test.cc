#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/common/error.h"
#include "engine/common/json.h"
#include "eval/longbench/longbench.h"
#include "tests/eval/longbench/longbench_folder.h"
#include "tests/test_data.h"

namespace tandem::eval {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string refusal(const std::function<void()>& what) {
  try {
    what();
  } catch (const InputError& error) {
    return error.what();
  }
  return "nothing was refused";
}

class LongBenchFiles : public ::testing::Test {
 protected:
  std::map<std::string, LongBenchFile> read(std::vector<std::string> asked = {}) {
    tasks = std::move(asked);
    return read_longbench(folder.path(), tasks);
  }
  std::string refused(const std::vector<std::string>& asked = {}) {
    return refusal([&] { read(asked); });
  }
  testing::LongBenchFolder folder;
  std::vector<std::string> tasks;
};

TEST_F(LongBenchFiles, AllThatAreThereInUpstreamsOrder) {
  folder.add("trec", 2);
  folder.add("qasper", 3);
  folder.add("qasper_e", 5);
  const auto files = read();
  EXPECT_THAT(tasks, ElementsAre("qasper", "trec"));
  const LongBenchFile& qasper = files.at("qasper");
  EXPECT_EQ(qasper.dataset->name, "qasper");
  EXPECT_EQ(qasper.max_new_tokens, 6u);
  ASSERT_EQ(qasper.records.size(), 3u);
  EXPECT_EQ(qasper.records[1].input, "Where is it?");
  EXPECT_THAT(qasper.records[1].answers, ElementsAre("the red barn"));
  EXPECT_EQ(qasper.records[1].length, 6000);
  EXPECT_THAT(files.at("trec").records[0].all_classes, ElementsAre("Place", "Person"));
}

TEST_F(LongBenchFiles, ThoseOfEWhereNothingElseIs) {
  folder.add("qasper_e", 2);
  EXPECT_EQ(read().at("qasper_e").dataset->name, "qasper");
  EXPECT_THAT(tasks, ElementsAre("qasper_e"));
}

TEST_F(LongBenchFiles, WhatIsNotReadWithoutTasksIsListed) {
  folder.add("qasper_e", 2);
  EXPECT_THAT(unread_longbench(folder.path()), IsEmpty());
  folder.add("qasper", 2);
  EXPECT_THAT(unread_longbench(folder.path()), ElementsAre(folder.path() / "data/qasper_e.jsonl"));
  for (const char* name : {"data/Hotpotqa.jsonl", "data/musique_e.jsonl", "data/notes.txt", "trec.jsonl"})
    folder.write(name, "not read");
  EXPECT_THAT(unread_longbench(folder.path()),
              ElementsAre(folder.path() / "data/Hotpotqa.jsonl", folder.path() / "data/musique_e.jsonl",
                          folder.path() / "data/qasper_e.jsonl", folder.path() / "trec.jsonl"))
      << "there is data/, so that nothing beside it is read";
  EXPECT_EQ(read().size(), 1u);
  EXPECT_EQ(read({"qasper", "qasper_e"}).size(), 2u) << "both, where both are asked for";
}

TEST_F(LongBenchFiles, FilesBesideTheConfigurationAreRead) {
  folder.add("qasper", 2);
  std::filesystem::rename(folder.path() / "data/qasper.jsonl", folder.path() / "qasper.jsonl");
  std::filesystem::remove(folder.path() / "data");
  EXPECT_EQ(read().size(), 1u);
  EXPECT_THAT(unread_longbench(folder.path()), IsEmpty());
}

TEST_F(LongBenchFiles, AHashThatFollowsDataPromptAndLength) {
  folder.add("qasper", 2);
  const std::uint64_t first = read().at("qasper").hash;
  EXPECT_EQ(read().at("qasper").hash, first);
  folder.add("qasper", 3);
  const std::uint64_t more = read().at("qasper").hash;
  EXPECT_NE(more, first);
  folder.write("config/dataset2maxlen.json", R"({"qasper": 7})");
  EXPECT_NE(read().at("qasper").hash, more);
}

TEST_F(LongBenchFiles, WhatIsWrongIsNamed) {
  EXPECT_THAT(refused(), HasSubstr("holds none of LongBench's files"));
  folder.add("qasper", 2);
  EXPECT_THAT(refused({"trec"}), HasSubstr("there is no 'trec.jsonl'"));
  EXPECT_THAT(refused({"trec_e"}), HasSubstr("there is no 'trec_e.jsonl'"));
  EXPECT_THAT(refused({"narrativeqa"}), HasSubstr("dataset2prompt.json has no prompt of 'narrativeqa'"));
  EXPECT_THAT(refused({"musique_e"}), HasSubstr("LongBench-E has no 'musique'"));
  EXPECT_THAT(refused({"quasper"}), HasSubstr("quasper"));
  folder.write("config/dataset2maxlen.json", R"({"qasper": 0})");
  EXPECT_THAT(refused(), HasSubstr("dataset2maxlen.json: 'qasper' must be a number"));
  folder.write("config/dataset2maxlen.json", "[]");
  EXPECT_THAT(refused(), HasSubstr("dataset2maxlen.json"));
  EXPECT_THAT(refusal([&] { read_longbench(folder.path() / "nowhere", tasks); }), HasSubstr("there is no folder"));
  EXPECT_THAT(refusal([&] { read_longbench(folder.path() / "data", tasks); }),
              HasSubstr("holds no config/dataset2prompt.json"));
}

TEST_F(LongBenchFiles, WhatAScoreWouldRefuseIsRefusedFirst) {
  folder.write("config/dataset2prompt.json", R"({"trec": "{input}", "passage_retrieval_en": "{input}"})");
  folder.write("config/dataset2maxlen.json", R"({"trec": 4, "passage_retrieval_en": 4})");
  const auto record = [](const char* answer, const nlohmann::json& classes) {
    return testing::LongBenchFolder::record("c", "i", {answer}, 1, classes);
  };
  folder.write("data/passage_retrieval_en.jsonl", record("Paragraph 3", nullptr) + record("the third", nullptr));
  EXPECT_THAT(refused(), AllOf(HasSubstr("passage_retrieval_en.jsonl, sample 2: "), HasSubstr("'the third'")));
  folder.write("data/passage_retrieval_en.jsonl", record("Paragraph 3", nullptr));
  folder.write("data/trec.jsonl", record("Place", {"Place"}) + record("Place", nullptr));
  EXPECT_THAT(refused(), HasSubstr("trec.jsonl, sample 2: 'all_classes' is empty"));
}

TEST(LongBenchLines, FieldsAreRequired) {
  const std::string good = testing::LongBenchFolder::record("c", "i", {"a"});
  ASSERT_EQ(parse_longbench(good + "\n\r\n" + good, "f").size(), 2u);
  const auto without = [&](const char* field, const nlohmann::json& value, bool there) {
    nlohmann::json json = parse_json(good, "JSON");
    if (there) {
      json[field] = value;
    } else {
      json.erase(field);
    }
    return refusal([&] { parse_longbench(good + json_text(json) + "\n", "f.jsonl"); });
  };
  for (const char* field : {"input", "context", "answers", "length", "all_classes"})
    EXPECT_EQ(without(field, {}, false), std::string("f.jsonl, line 2: '") + field + "' is missing.");
  EXPECT_THAT(without("context", 3, true), HasSubstr("line 2: 'context' must hold text"));
  EXPECT_THAT(without("answers", nlohmann::json::array(), true), HasSubstr("at least one answer"));
  EXPECT_THAT(without("length", -1, true), HasSubstr("'length' must be a number of words"));
  EXPECT_THAT(without("all_classes", "x", true), HasSubstr("'all_classes' must be a list"));
  EXPECT_THAT(refusal([] { parse_longbench("[1]\n", "f"); }), HasSubstr("line 1: not a JSON object"));
  EXPECT_THAT(refusal([] { parse_longbench("\n", "f"); }), HasSubstr("holds no sample"));
}

TEST(LongBenchPrompt, FieldsStandWhereTheirNamesStood) {
  const LongBenchRecord record{"{context}?", "a {brace}", {"x"}, {}, 1};
  EXPECT_EQ(longbench_prompt("<{context}> {{{input}}} {{no}}", record), "<a {brace}> {{context}?} {no}");
  for (const char* bad : {"{length}", "{context", "}", "{ input}"})
    EXPECT_THAT(refusal([&] { longbench_prompt(bad, record); }), HasSubstr("only {context} and {input}")) << bad;
}

TEST(LongBenchPublished, FilesAreReadWhole) {
  const auto folder = testing::test_data("longbench/config/dataset2prompt.json");
  if (folder.empty()) GTEST_SKIP() << testing::missing_test_data("longbench/config/dataset2prompt.json");
  std::vector<std::string> tasks;
  const auto files = read_longbench(folder.parent_path().parent_path(), tasks);
  EXPECT_THAT(tasks, ElementsAre("multifieldqa_zh", "multi_news"));
  EXPECT_EQ(files.at("multi_news").records.size(), 200u);
  EXPECT_EQ(files.at("multifieldqa_zh").records.size(), 200u);
  EXPECT_EQ(files.at("multi_news").max_new_tokens, 512u);
}

}  // namespace
}  // namespace tandem::eval
