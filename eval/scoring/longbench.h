// LongBench (version 1): the metric of each data set, and scores equal to what upstream's eval.py prints
// (THUDM/LongBench at 2e00731, with rouge 1.0.1, fuzzywuzzy 0.18.0 without python-Levenshtein, jieba 0.42.1;
// Python 3.11), quirks included. The metrics are in token_f1.h, rouge.h, choice.h and edit_similarity.h; each says
// what is odd about it.
//
// One sample's score is that of its best answer, and at least 0: a sample without answers scores 0. All texts are
// UTF-8; bytes that are none count as U+FFFD.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::eval {

enum class LongBenchMetric : std::uint8_t {
  qa_f1,
  qa_f1_zh,  // words are found by segment_chinese()
  rouge,
  rouge_zh,  // likewise
  classification,
  retrieval,
  retrieval_zh,
  count,
  code_similarity,
};

/// Upstream's name of the function, for example "qa_f1_score".
std::string_view to_string(LongBenchMetric metric);

enum class LongBenchLanguage : std::uint8_t { english, chinese, code };

struct LongBenchDataset {
  std::string_view name;  // upstream's configuration, also the name of its file: "2wikimqa" is in 2wikimqa.jsonl
  LongBenchMetric metric;
  LongBenchLanguage language;
  bool first_line_only;  // of the prediction, newlines before it left out: what follows does not count
  bool in_e;             // LongBench-E has it too (as "2wikimqa_e")
};

/// All 21, in the order of upstream's eval.py.
std::span<const LongBenchDataset> longbench_datasets();

/// By upstream's name. InputError that lists the names where there is none.
const LongBenchDataset& longbench_dataset(std::string_view name);

/// Whether scores need Python's jieba (Debian package python3-jieba), see segment_chinese.h.
bool needs_segmenter(LongBenchMetric metric);

struct LongBenchSample {
  std::string prediction;            // as the model wrote it, end token left out; what counts of it is found here
  std::vector<std::string> answers;  // the record's "answers"
};

/// Scores of samples of one data set in [0, 1], in their order. `all_classes`: of the record; used by classification
/// only. Upstream takes the last record's for all of a file; they are the same in every record of its files.
/// For Chinese texts one Python process finds the words of all samples, which takes a second or two whatever their
/// number: score a run's samples with one call. InputError where jieba is not installed, or where an answer of a
/// retrieval task names no paragraph (upstream stops there, too).
std::vector<double> longbench_scores(const LongBenchDataset& dataset, std::span<const LongBenchSample> samples,
                                     std::span<const std::string> all_classes);

/// The same for one sample.
double longbench_score(const LongBenchDataset& dataset, std::string_view prediction,
                       std::span<const std::string> answers, std::span<const std::string> all_classes);

/// The figure of a data set in percent: upstream's round(100 * sum / n, 2). No samples: 0 (upstream divides by zero).
double longbench_dataset_score(std::span<const double> scores);

/// LongBench-E's buckets by the record's "length" (words, of Chinese characters): "0-4k", "4-8k", "8k+".
inline constexpr std::array<std::string_view, 3> kLongBenchBuckets = {"0-4k", "4-8k", "8k+"};

/// Index of the bucket: length < 4000, length < 8000, all longer ones.
std::size_t longbench_bucket(std::int64_t length);

/// LongBench-E's figures per bucket, in percent; nothing for a bucket without samples (upstream writes NaN). They are
/// rounded by NumPy, which sums pairwise and rounds 100 times the value to an integer, so that a figure can differ from
/// longbench_dataset_score() of the same scores in its last digit. As many lengths as scores.
std::array<std::optional<double>, 3> longbench_e_scores(std::span<const double> scores,
                                                        std::span<const std::int64_t> lengths);

}  // namespace tandem::eval
