#include "eval/longbench/longbench.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>

#include "engine/common/error.h"
#include "eval/ruler_tasks/random.h"
#include "tests/eval/longbench/longbench_folder.h"
#include "tests/test_data.h"

namespace tandem::eval {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class LongBenchTest : public ::testing::Test {
 protected:
  LongBenchTest() : model(load_model("tiny")) { options.data = folder.path(); }
  LongBench read() const { return {options, model}; }
  std::string refused() const {
    try {
      read();
    } catch (const InputError& error) {
      return error.what();
    }
    return "nothing was refused";
  }
  std::string text_of(const DatasetSample& sample) const { return model.tokenizer->decode(sample.prompt); }

  testing::LongBenchFolder folder;
  Model model;
  FileChoice options;
};

TEST_F(LongBenchTest, APromptIsUpstreamsWithTheRecordInIt) {
  folder.add("qasper", 3);
  const DatasetSample sample = read().sample("qasper", 0, 1);
  EXPECT_EQ(sample.prompt,
            model.tokenizer->encode(
                "Read.\n\nThe parcel 1 is in the red barn near the mill.\n\nQuestion: Where is it?\n\nAnswer:", true));
  EXPECT_THAT(sample.answers, ElementsAre("the red barn"));
  EXPECT_EQ(sample.max_new_tokens, 6u);
  EXPECT_EQ(sample.task, "qasper");
  EXPECT_EQ(sample.index, 1u);
  EXPECT_THAT(sample.stop_tokens, IsEmpty());
}

TEST_F(LongBenchTest, ALongPromptLosesItsMiddle) {
  std::string context = "The first words stay.";
  for (int i = 0; i < 60; ++i) context += " Line " + std::to_string(i) + " says little.";
  folder.write("data/qasper.jsonl", testing::LongBenchFolder::record(context, "Why?", {"x"}));
  options.max_length = 41;
  const std::string text = text_of(read().sample("qasper", 0, 0));
  EXPECT_THAT(text, ::testing::StartsWith("Read.\n\nThe first words stay."));
  EXPECT_THAT(text, ::testing::EndsWith("Question: Why?\n\nAnswer:"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("Line 30")));
  // Two halves of 20 tokens; where they meet they may be cut otherwise.
  EXPECT_NEAR(static_cast<double>(read().sample("qasper", 0, 0).prompt.size()), 40, 3);
  options.max_length = 2000;
  EXPECT_THAT(text_of(read().sample("qasper", 0, 0)), HasSubstr("Line 30"));
}

TEST_F(LongBenchTest, TheLongestPromptIsOfTheSamplesThatAreThere) {
  folder.add("qasper", 3);
  folder.add("trec", 2);
  const LongBench benchmark = read();
  std::size_t longest = 0;
  for (const std::string& task : benchmark.tasks())
    for (std::uint32_t i = 0; i < benchmark.samples_of(task); ++i)
      longest = std::max(longest, benchmark.sample(task, 0, i).prompt.size());
  EXPECT_GE(benchmark.longest_prompt(), longest);
  EXPECT_LE(benchmark.longest_prompt(), longest + 128);
  EXPECT_LT(benchmark.longest_prompt(), benchmark.max_length());
  std::string context;
  for (int i = 0; i < 300; ++i) context += " Line " + std::to_string(i) + " says little.";
  folder.write("data/qasper.jsonl", testing::LongBenchFolder::record(context, "Why?", {"x"}));
  options.max_length = 1001;
  EXPECT_GE(read().longest_prompt(), read().sample("qasper", 0, 0).prompt.size());
  EXPECT_GE(read().longest_prompt(), 1000u);
  EXPECT_LE(read().longest_prompt(), 1065u);
}

TEST_F(LongBenchTest, ATemplateComesAroundPromptsButNotAroundLists) {
  folder.add("qasper", 1);
  folder.add("trec", 1);
  folder.add("samsum", 1);
  options.template_of = ChatFormat::llama2;
  EXPECT_THAT(text_of(read().sample("qasper", 0, 0)), AllOf(HasSubstr("[INST] Read."), HasSubstr("Answer: [/INST]")));
  EXPECT_THAT(text_of(read().sample("trec", 0, 0)), ::testing::Not(HasSubstr("INST")));
  const DatasetSample samsum = read().sample("samsum", 0, 0);
  EXPECT_THAT(text_of(samsum), ::testing::Not(HasSubstr("INST")));
  ASSERT_EQ(samsum.stop_tokens.size(), 1u);
  EXPECT_EQ(model.tokenizer->bytes_of(samsum.stop_tokens[0], false), "\n");
}

TEST_F(LongBenchTest, SamplesOfTheSameContextSaySo) {
  folder.write("data/qasper.jsonl", folder.record("One.", "Who?", {"A"}) + folder.record("Two.", "Who?", {"B"}) +
                                        folder.record("One.", "Where?", {"C"}));
  folder.add("trec", 2);
  const LongBench benchmark = read();
  EXPECT_EQ(benchmark.sample("qasper", 0, 0).document, 0u);
  EXPECT_EQ(benchmark.sample("qasper", 0, 1).document, 1u);
  EXPECT_EQ(benchmark.sample("qasper", 0, 2).document, 0u);
  EXPECT_EQ(benchmark.sample("trec", 0, 1).document, std::nullopt);
}

TEST_F(LongBenchTest, ScoresAreUpstreamsInOnePerSample) {
  folder.add("qasper", 2);
  folder.add("trec", 1);
  const LongBench benchmark = read();
  const std::vector<DatasetSample> qasper = {benchmark.sample("qasper", 0, 0), benchmark.sample("qasper", 0, 1)};
  const std::vector<std::string> said = {" The red barn.", " a barn"};
  const std::vector<Score> scores = benchmark.scores(qasper, said);  // articles do not count
  ASSERT_EQ(scores.size(), 2u);
  EXPECT_EQ(scores[0].value, 1);
  EXPECT_DOUBLE_EQ(scores[1].value, 2.0 / 3);
  folder.write("data/trec.jsonl", testing::LongBenchFolder::record("c", "i", {"Place"}, 1, {"Place", "Person"}));
  const LongBench trec = read();
  const std::vector<std::string> both = {"\nPlace or Person\nno"};
  EXPECT_EQ(trec.scores(std::vector{trec.sample("trec", 0, 0)}, both).at(0).value, 0.5);
}

TEST_F(LongBenchTest, TheManifestSaysWhatScoresDependOn) {
  folder.add("qasper", 3);
  folder.add("trec", 2);
  Manifest manifest;
  manifest.tokenizer_hash = "abc";
  options.max_length = 1000;
  read().fill_manifest({"full", "hgca"}, manifest);
  EXPECT_EQ(manifest.benchmark, "longbench");
  EXPECT_THAT(manifest.tasks, ElementsAre("qasper", "trec"));
  EXPECT_THAT(manifest.lengths, ElementsAre(0u));
  EXPECT_EQ(manifest.samples, 3u);
  EXPECT_THAT(manifest.task_samples, ElementsAre(3u, 2u));
  EXPECT_EQ(manifest.all_samples(), 5u);
  EXPECT_THAT(manifest.protocol_id, AllOf(HasSubstr("longbench/v1+data:"), HasSubstr("+tok:abc+template:none"),
                                          HasSubstr("+length:cut-middle-1000+"), HasSubstr("budget:hgca=")));
  std::set<std::string> ids = {manifest.protocol_id};
  const auto add = [&] {
    Manifest other;
    other.tokenizer_hash = "abc";
    read().fill_manifest({"full", "hgca"}, other);
    ids.insert(other.protocol_id);
  };
  options.samples = 2;
  add();  // the same data
  EXPECT_EQ(ids.size(), 1u);
  options.template_of = ChatFormat::qwen3;
  add();
  options.max_length = 1001;
  add();
  folder.add("qasper", 4);
  add();
  EXPECT_EQ(ids.size(), 4u);
  Manifest few;
  read().fill_manifest({"full"}, few);
  EXPECT_EQ(few.samples, 2u);
  EXPECT_THAT(few.task_samples, IsEmpty());
}

TEST_F(LongBenchTest, LengthsThatUpstreamHas) {
  ModelConfig config;
  for (const auto& [positions, length] : std::vector<std::pair<std::uint32_t, std::uint32_t>>{
           {4096, 3500}, {8192, 7500}, {16384, 15500}, {32768, 31500}, {40960, 40000}, {800, 400}}) {
    config.max_positions = positions;
    EXPECT_EQ(default_max_length(config), length);
  }
}

TEST_F(LongBenchTest, TheDefaultLengthHasRoomForTheLongestAnswers) {
  folder.add("qasper", 1);
  folder.write("config/dataset2maxlen.json", R"({"qasper": 512})");
  for (const std::uint32_t positions : {1076u, 2048u, 4096u, 32768u, 131072u}) {
    model.config.max_positions = positions;
    EXPECT_EQ(read().max_length(), default_max_length(model.config)) << positions;
  }
}

TEST_F(LongBenchTest, RoomForAnswersIsAskedFor) {
  folder.add("qasper", 1);
  options.max_length = model.config.max_positions - 64 - 6;
  EXPECT_EQ(read().max_length(), options.max_length);
  ++options.max_length;
  EXPECT_THAT(refused(), AllOf(HasSubstr("--max-length"), HasSubstr("leaves no room for the 6 tokens")));
  options.max_length = 1;
  EXPECT_THAT(refused(), HasSubstr("--max-length is 1"));
}

struct GoldenFile {
  const char* task;
  std::uint32_t max_length;
  std::size_t tokens;
  std::uint64_t hash;  // FNV-1a of the ids, 32 bits each, little endian
};

/// What upstream's steps give with sentencepiece 0.2 (Llama 2, embedded) and Hugging Face's tokenizer of Qwen2
/// (transformers 5.23), of the first 12 records of each file.
struct GoldenPrompts {
  std::string tokenizer;
  std::vector<GoldenFile> files;
};

class LongBenchPrompts : public ::testing::TestWithParam<GoldenPrompts> {};

TEST_P(LongBenchPrompts, AreUpstreamsToTheToken) {
  using testing::test_data;
  const std::string& name = GetParam().tokenizer;
  const auto data = test_data("longbench/data/multi_news.jsonl");
  if (data.empty()) GTEST_SKIP() << testing::missing_test_data("longbench/data/multi_news.jsonl");
  const auto folder = name == "embedded" ? source_folder() / "models/deep" : test_data("tokenizers/" + name);
  if (folder.empty()) GTEST_SKIP() << testing::missing_test_data("tokenizers/" + name);
  const auto tokenizer = load_tokenizer(folder);
  std::vector<std::string> tasks;
  const auto files = read_longbench(data.parent_path().parent_path(), tasks);
  for (const GoldenFile& golden : GetParam().files) {
    const LongBenchFile& file = files.at(golden.task);
    std::string bytes;
    std::size_t tokens = 0;
    for (std::size_t i = 0; i < 12; ++i) {
      const std::vector<std::int32_t> prompt =
          longbench_tokens(*tokenizer, file, file.records[i], golden.max_length, {});
      tokens += prompt.size();
      for (const std::int32_t id : prompt)
        for (int shift = 0; shift < 32; shift += 8) bytes += static_cast<char>(id >> shift);
    }
    EXPECT_EQ(tokens, golden.tokens) << golden.task << " " << golden.max_length;
    EXPECT_EQ(fnv1a64(bytes), golden.hash) << golden.task << " " << golden.max_length;
  }
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, LongBenchPrompts,
                         ::testing::Values(GoldenPrompts{"llama-2",
                                                         {{"multi_news", 301, 3600, 0xab8f8562da1cda48ull},
                                                          {"multi_news", 1500, 16430, 0xc0f1cffe6ebc68e9ull},
                                                          {"multi_news", 1000000, 25410, 0x9ee9e9b2a348bcbaull},
                                                          {"multifieldqa_zh", 301, 3598, 0xf983d98127b4d410ull},
                                                          {"multifieldqa_zh", 1500, 17996, 0xeba0414c38e8fd95ull},
                                                          {"multifieldqa_zh", 1000000, 87811, 0xff9dacfdba562693ull}}},
                                           GoldenPrompts{"embedded",
                                                         {{"multi_news", 301, 3600, 0x0d93430d2b0c995dull},
                                                          {"multi_news", 1500, 17382, 0x2f07b3922488d029ull},
                                                          {"multi_news", 1000000, 42854, 0xa540c6062a202b61ull},
                                                          {"multifieldqa_zh", 301, 3634, 0x42f0bfbc812cca05ull},
                                                          {"multifieldqa_zh", 1500, 18058, 0xf8d7325dbb4f55a9ull},
                                                          {"multifieldqa_zh", 1000000, 169560, 0x00f8accf0ebd171dull}}},
                                           GoldenPrompts{"qwen2",
                                                         {{"multi_news", 301, 3600, 0x079a585102fb37bfull},
                                                          {"multi_news", 1500, 16108, 0xc0835f3dfac82fc1ull},
                                                          {"multi_news", 1000000, 21507, 0x2280cba4da43ae27ull},
                                                          {"multifieldqa_zh", 301, 3600, 0x4b9ff5dd370ed670ull},
                                                          {"multifieldqa_zh", 1500, 18000, 0xdf4fc55389cf7388ull},
                                                          {"multifieldqa_zh", 1000000, 43733, 0xe1ea678fd165df07ull}}}),
                         [](const ::testing::TestParamInfo<GoldenPrompts>& tokenizer) {
                           std::string name = tokenizer.param.tokenizer;
                           std::erase(name, '-');
                           return name;
                         });

}  // namespace
}  // namespace tandem::eval
