// Prompts of L-Eval's published files against upstream's steps with other libraries' tokenizers.
#include <gtest/gtest.h>

#include "eval/leval/leval.h"
#include "eval/ruler_tasks/random.h"
#include "tests/test_data.h"

namespace tandem::eval {
namespace {

struct GoldenTask {
  const char* task;
  std::size_t tokens;
  std::uint64_t hash;  // FNV-1a of the ids, 32 bits each, little endian
};

/// What upstream's steps give of the first 4 questions of each file: with sentencepiece 0.2 (Llama 2, its template,
/// documents of 3,488 tokens) and Hugging Face's tokenizers 0.23 (Qwen2, no template, 7,488 tokens).
struct GoldenQuestions {
  std::string tokenizer;
  std::optional<ChatFormat> template_of;
  std::uint32_t max_length;
  std::vector<GoldenTask> files;
};

class LEvalPrompts : public ::testing::TestWithParam<GoldenQuestions> {};

TEST_P(LEvalPrompts, AreUpstreamsToTheToken) {
  using testing::test_data;
  const GoldenQuestions& goldens = GetParam();
  const auto data = test_data("leval"), folder = test_data("tokenizers/" + goldens.tokenizer);
  if (data.empty()) GTEST_SKIP() << testing::missing_test_data("leval");
  if (folder.empty()) GTEST_SKIP() << testing::missing_test_data("tokenizers/" + goldens.tokenizer);
  Model model = load_model("tiny");
  model.tokenizer = load_tokenizer(folder);
  model.config.max_positions = 32768;
  FileChoice options{data, {}, 4, goldens.max_length, goldens.template_of};
  for (const GoldenTask& golden : goldens.files) options.tasks.emplace_back(golden.task);
  const LEval benchmark(options, model);
  for (const GoldenTask& golden : goldens.files) {
    std::string bytes;
    std::size_t tokens = 0;
    for (std::uint32_t i = 0; i < benchmark.samples_of(golden.task); ++i) {
      const std::vector<std::int32_t> prompt = benchmark.sample(golden.task, 0, i).prompt;
      EXPECT_LE(prompt.size(), benchmark.longest_prompt());
      tokens += prompt.size();
      for (const std::int32_t id : prompt)
        for (int shift = 0; shift < 32; shift += 8) bytes += static_cast<char>(id >> shift);
    }
    EXPECT_EQ(tokens, golden.tokens) << golden.task;
    EXPECT_EQ(fnv1a64(bytes), golden.hash) << golden.task;
  }
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, LEvalPrompts,
                         ::testing::Values(GoldenQuestions{"llama-2",
                                                           ChatFormat::llama2,
                                                           3488,
                                                           {{"coursera", 14382, 0x2775b4964b38e113},
                                                            {"gsm100", 13360, 0x6dd6fc244d7b4cbe},
                                                            {"quality", 14746, 0x15a0ffcce63e3fe0},
                                                            {"topic_retrieval_longchat", 14319, 0xcbed8908f3f8414e},
                                                            {"tpo", 13774, 0xc9aca22e9e2e3459},
                                                            {"financial_qa", 13136, 0xa7985c69f6a3ffc6},
                                                            {"gov_report_summ", 13227, 0xd51df60a9dd1f8b1},
                                                            {"legal_contract_qa", 13838, 0x0bd6c8507e94e61b},
                                                            {"meeting_summ", 13063, 0x6a3bd993ba0b1693},
                                                            {"multidoc_qa", 12926, 0x16291972352d6262},
                                                            {"natural_question", 13138, 0xf0e8ce57ffa1ad32},
                                                            {"news_summ", 13558, 0xd6054555a70dbbd5},
                                                            {"paper_assistant", 13376, 0x56768a63ae73521e}}},
                                           GoldenQuestions{"qwen2",
                                                           std::nullopt,
                                                           7488,
                                                           {{"coursera", 21100, 0xed89657ae3daafdb},
                                                            {"gsm100", 20150, 0xa8fe487038296ef5},
                                                            {"quality", 25817, 0x8bc0de9ead4c73fc},
                                                            {"topic_retrieval_longchat", 30145, 0xb1a91d5e3630f50d},
                                                            {"tpo", 14537, 0x50c05857146e87bb},
                                                            {"financial_qa", 19216, 0x3d43a0bbed14a158},
                                                            {"gov_report_summ", 23877, 0xce221e186f7d539d},
                                                            {"legal_contract_qa", 29861, 0xf0788f81d8c92d4a},
                                                            {"meeting_summ", 29218, 0x8a0eae13fe312fa3},
                                                            {"multidoc_qa", 11293, 0x342f2c38e25f4a04},
                                                            {"natural_question", 29982, 0x420ee29006fd96db},
                                                            {"news_summ", 17708, 0x4b06809e736824c8},
                                                            {"paper_assistant", 23957, 0x6618bdfe47bb8606}}}),
                         [](const auto& which) { return which.param.tokenizer == "qwen2" ? "qwen2" : "llama2"; });

}  // namespace
}  // namespace tandem::eval
