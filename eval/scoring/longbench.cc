#include "eval/scoring/longbench.h"

#include <algorithm>
#include <fmt/format.h>
#include <numeric>

#include "engine/common/error.h"
#include "engine/model/utf8.h"
#include "eval/scoring/choice.h"
#include "eval/scoring/edit_similarity.h"
#include "eval/scoring/rouge.h"
#include "eval/scoring/rounding.h"
#include "eval/scoring/segment_chinese.h"
#include "eval/scoring/token_f1.h"

namespace tandem::eval {
namespace {

using Words = std::vector<std::string>;

constexpr std::array<LongBenchDataset, 21> kDatasets = {{
    {"narrativeqa", LongBenchMetric::qa_f1, LongBenchLanguage::english, false, false},
    {"qasper", LongBenchMetric::qa_f1, LongBenchLanguage::english, false, true},
    {"multifieldqa_en", LongBenchMetric::qa_f1, LongBenchLanguage::english, false, true},
    {"multifieldqa_zh", LongBenchMetric::qa_f1_zh, LongBenchLanguage::chinese, false, false},
    {"hotpotqa", LongBenchMetric::qa_f1, LongBenchLanguage::english, false, true},
    {"2wikimqa", LongBenchMetric::qa_f1, LongBenchLanguage::english, false, true},
    {"musique", LongBenchMetric::qa_f1, LongBenchLanguage::english, false, false},
    {"dureader", LongBenchMetric::rouge_zh, LongBenchLanguage::chinese, false, false},
    {"gov_report", LongBenchMetric::rouge, LongBenchLanguage::english, false, true},
    {"qmsum", LongBenchMetric::rouge, LongBenchLanguage::english, false, false},
    {"multi_news", LongBenchMetric::rouge, LongBenchLanguage::english, false, true},
    {"vcsum", LongBenchMetric::rouge_zh, LongBenchLanguage::chinese, false, false},
    {"trec", LongBenchMetric::classification, LongBenchLanguage::english, true, true},
    {"triviaqa", LongBenchMetric::qa_f1, LongBenchLanguage::english, true, true},
    {"samsum", LongBenchMetric::rouge, LongBenchLanguage::english, true, true},
    {"lsht", LongBenchMetric::classification, LongBenchLanguage::chinese, true, false},
    {"passage_retrieval_en", LongBenchMetric::retrieval, LongBenchLanguage::english, false, true},
    {"passage_count", LongBenchMetric::count, LongBenchLanguage::english, false, true},
    {"passage_retrieval_zh", LongBenchMetric::retrieval_zh, LongBenchLanguage::chinese, false, false},
    {"lcc", LongBenchMetric::code_similarity, LongBenchLanguage::code, false, true},
    {"repobench-p", LongBenchMetric::code_similarity, LongBenchLanguage::code, false, true},
}};

struct Metric {
  std::string_view name;
  double (*of_texts)(std::string_view prediction, std::string_view answer);  // null: needs words or classes
};

/// As LongBenchMetric has them.
constexpr auto kMetrics = std::to_array<Metric>({{"qa_f1_score", qa_f1},
                                                 {"qa_f1_zh_score", nullptr},
                                                 {"rouge_score", rouge_l},
                                                 {"rouge_zh_score", nullptr},
                                                 {"classification_score", nullptr},
                                                 {"retrieval_score", retrieval},
                                                 {"retrieval_zh_score", retrieval_zh},
                                                 {"count_score", count_score},
                                                 {"code_sim_score", code_similarity}});

const Metric& metric_of(LongBenchMetric metric) {
  return kMetrics.at(static_cast<std::size_t>(metric));
}

std::string_view first_line(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of('\n'), text.size()));
  return text.substr(0, text.find('\n'));
}

std::string what_counts(const LongBenchDataset& dataset, const LongBenchSample& sample) {
  return repair_utf8(dataset.first_line_only ? first_line(sample.prediction) : sample.prediction);
}

double score_of_words(LongBenchMetric metric, const Words& prediction, const Words& answer) {
  const auto with_spaces = [](const Words& words) { return fmt::format("{}", fmt::join(words, " ")); };
  return metric == LongBenchMetric::qa_f1_zh ? qa_f1_zh(prediction, answer)
                                             : rouge_l(with_spaces(prediction), with_spaces(answer));
}

/// By the words of all samples' texts, found at once.
std::vector<double> scores_of_words(const LongBenchDataset& dataset, std::span<const LongBenchSample> samples) {
  std::vector<std::string> texts;
  for (const LongBenchSample& sample : samples) {
    texts.push_back(what_counts(dataset, sample));
    for (const std::string& answer : sample.answers) texts.push_back(repair_utf8(answer));
  }
  const std::vector<Words> words = segment_chinese(texts);
  std::vector<double> scores;
  auto at = words.begin();
  for (const LongBenchSample& sample : samples) {
    const Words& prediction = *at++;
    double best = 0;
    for (std::size_t i = 0; i < sample.answers.size(); ++i)
      best = std::max(best, score_of_words(dataset.metric, prediction, *at++));
    scores.push_back(best);
  }
  return scores;
}

}  // namespace

std::string_view to_string(LongBenchMetric metric) {
  return metric_of(metric).name;
}

std::span<const LongBenchDataset> longbench_datasets() {
  return kDatasets;
}

const LongBenchDataset& longbench_dataset(std::string_view name) {
  const auto* const found = std::find_if(kDatasets.begin(), kDatasets.end(),
                                         [name](const LongBenchDataset& dataset) { return dataset.name == name; });
  if (found != kDatasets.end()) return *found;
  std::vector<std::string> names;
  names.reserve(kDatasets.size());
  for (const LongBenchDataset& dataset : kDatasets) names.emplace_back(dataset.name);
  throw_input_error("LongBench has no data set '{}'.{} It has {}.", name, did_you_mean(name, names), join_names(names));
}

bool needs_segmenter(LongBenchMetric metric) {
  return metric == LongBenchMetric::qa_f1_zh || metric == LongBenchMetric::rouge_zh;
}

std::vector<double> longbench_scores(const LongBenchDataset& dataset, std::span<const LongBenchSample> samples,
                                     std::span<const std::string> all_classes) {
  if (needs_segmenter(dataset.metric)) return scores_of_words(dataset, samples);
  std::vector<double> scores;
  for (const LongBenchSample& sample : samples) {
    const std::string prediction = what_counts(dataset, sample);
    double best = 0;
    for (const std::string& given : sample.answers) {
      const std::string answer = repair_utf8(given);
      best = std::max(best, dataset.metric == LongBenchMetric::classification
                                ? classification(prediction, answer, all_classes)
                                : metric_of(dataset.metric).of_texts(prediction, answer));
    }
    scores.push_back(best);
  }
  return scores;
}

double longbench_score(const LongBenchDataset& dataset, std::string_view prediction,
                       std::span<const std::string> answers, std::span<const std::string> all_classes) {
  const LongBenchSample sample{std::string(prediction), {answers.begin(), answers.end()}};
  return longbench_scores(dataset, {&sample, 1}, all_classes).front();
}

double longbench_dataset_score(std::span<const double> scores) {
  if (scores.empty()) return 0;
  const double sum = std::accumulate(scores.begin(), scores.end(), 0.0);
  return python_round(100 * sum / static_cast<double>(scores.size()), 2);
}

std::size_t longbench_bucket(std::int64_t length) {
  return length < 4000 ? 0 : length < 8000 ? 1 : 2;
}

std::array<std::optional<double>, 3> longbench_e_scores(std::span<const double> scores,
                                                        std::span<const std::int64_t> lengths) {
  TANDEM_CHECK(scores.size() == lengths.size(), "{} scores, {} lengths", scores.size(), lengths.size());
  std::array<std::vector<double>, 3> buckets;
  for (std::size_t i = 0; i < scores.size(); ++i) buckets[longbench_bucket(lengths[i])].push_back(scores[i]);
  std::array<std::optional<double>, 3> result;
  for (std::size_t i = 0; i < buckets.size(); ++i)
    if (!buckets[i].empty()) result[i] = numpy_percentage(buckets[i]);
  return result;
}

}  // namespace tandem::eval
