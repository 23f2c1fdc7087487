// Scores against those of LongBench's Python: longbench_goldens.json, made by longbench_goldens.py.
#include <cstdlib>
#include <fmt/format.h>
#include <fstream>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/common/json.h"
#include "engine/common/paths.h"
#include "eval/scoring/choice.h"
#include "eval/scoring/edit_similarity.h"
#include "eval/scoring/longbench.h"
#include "eval/scoring/rouge.h"
#include "eval/scoring/token_f1.h"
#include "tests/eval/scoring/segmenter.h"

namespace tandem::eval {
namespace {

using Strings = std::vector<std::string>;

const nlohmann::json& goldens() {
  static const nlohmann::json json = [] {
    const char* other = std::getenv("TANDEM_LONGBENCH_GOLDENS");
    std::ifstream file(other != nullptr ? other : source_folder() / "tests/eval/scoring/longbench_goldens.json");
    return nlohmann::json::parse(file);
  }();
  return json;
}

Strings strings(const nlohmann::json& json) {
  return json.is_null() ? Strings{} : json.get<Strings>();
}

/// As longbench_score() gives it for one answer, but with the words of Chinese texts given.
double score_of(const nlohmann::json& golden) {
  const auto metric = golden.at("metric").get<std::string>();
  const auto prediction = golden.at("prediction").get<std::string>(), answer = golden.at("answer").get<std::string>();
  if (metric == "qa_f1_score") return qa_f1(prediction, answer);
  if (metric == "rouge_score") return rouge_l(prediction, answer);
  if (metric == "retrieval_score") return retrieval(prediction, answer);
  if (metric == "retrieval_zh_score") return retrieval_zh(prediction, answer);
  if (metric == "count_score") return count_score(prediction, answer);
  if (metric == "code_sim_score") return code_similarity(prediction, answer);
  if (metric == "classification_score") return classification(prediction, answer, strings(golden.at("classes")));
  const Strings predicted = strings(golden.at("words")[0]), expected = strings(golden.at("words")[1]);
  if (metric == "qa_f1_zh_score") return qa_f1_zh(predicted, expected);
  return rouge_l(fmt::format("{}", fmt::join(predicted, " ")), fmt::format("{}", fmt::join(expected, " ")));
}

TEST(LongBenchGoldens, EveryMetricGivesUpstreamsScore) {
  std::set<std::string> between;  // metrics of which a score is neither 0 nor 1
  for (const auto& golden : goldens().at("cases")) {
    const auto expected = golden.at("score").get<double>();
    ASSERT_EQ(score_of(golden), expected) << json_text(golden);
    if (expected > 0 && expected < 1) between.insert(golden.at("metric").get<std::string>());
  }
  EXPECT_EQ(between.size(), 9u);
}

void compare_datasets(bool segmented) {
  int compared = 0;
  for (const auto& golden : goldens().at("datasets")) {
    const LongBenchDataset& dataset = longbench_dataset(golden.at("dataset").get<std::string>());
    if (needs_segmenter(dataset.metric) != segmented) continue;
    std::vector<LongBenchSample> samples;
    for (const auto& sample : golden.at("samples"))
      samples.push_back({sample[0].get<std::string>(), strings(sample[1])});
    const auto scores = longbench_scores(dataset, samples, strings(golden.at("classes")));
    EXPECT_EQ(longbench_dataset_score(scores), golden.at("score").get<double>()) << dataset.name;
    const auto buckets = longbench_e_scores(scores, golden.at("lengths").get<std::vector<std::int64_t>>());
    for (std::size_t i = 0; i < buckets.size(); ++i) {
      const auto& bucket = golden.at("buckets")[i];
      const auto expected = bucket.is_null() ? std::nullopt : std::optional(bucket.get<double>());
      EXPECT_EQ(buckets[i], expected) << dataset.name << ' ' << kLongBenchBuckets[i];
    }
    ++compared;
  }
  EXPECT_GT(compared, 0);
}

TEST(LongBenchGoldens, EveryDataSetGivesUpstreamsFigures) {
  compare_datasets(false);
}

TEST(LongBenchGoldens, EveryChineseDataSetToo) {
  if (!testing::has_segmenter()) GTEST_SKIP() << "not installed: jieba";
  compare_datasets(true);
}

TEST(LongBenchGoldens, WordsOfChineseTextsAreJiebas) {
  if (!testing::has_segmenter()) GTEST_SKIP() << "not installed: jieba";
  Strings texts;
  std::vector<Strings> words;
  for (const auto& golden : goldens().at("cases")) {
    if (!golden.contains("words")) continue;
    for (const char* name : {"prediction", "answer"}) texts.push_back(golden.at(name).get<std::string>());
    for (const auto& list : golden.at("words")) words.push_back(strings(list));
  }
  EXPECT_EQ(segment_chinese(texts), words);
}

}  // namespace
}  // namespace tandem::eval
