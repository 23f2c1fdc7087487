// LongBench (Bai et al. 2023, arXiv 2308.14508) as a dataset (eval/run/dataset.h): upstream's prompts, truncation,
// tokens to generate and scores. Its files are read as upstream publishes them:
//   config/dataset2prompt.json, config/dataset2maxlen.json     prompts and tokens to generate
//   data/<data set>.jsonl, data/<data set>_e.jsonl             samples; _e: LongBench-E's
// in a folder, or the .jsonl beside config/. A line has "input", "context", "answers", "length" (words, of Chinese
// characters) and "all_classes" (a list or null); its other fields are not looked at.
//
// A prompt of more than max_length tokens loses its middle, as upstream's: the first and the last max_length / 2 tokens
// are decoded and joined, and the text is encoded anew, so that a prompt may be some tokens longer or shorter than
// that. A chat template comes around the prompt afterwards, but not for trec, triviaqa, samsum, lsht, lcc and
// repobench-p, which continue a list or a program. Answers are greedy. samsum's end with their line: upstream also
// forbids a first token that ends them, where here an empty first line is text and an end token ends the answer.
//
// The protocol id is FileDataset's, with +length:cut-middle-<max_length>+score:upstream.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "eval/run/file_dataset.h"
#include "eval/scoring/longbench.h"

namespace tandem::eval {

struct LongBenchRecord {
  std::string input, context;
  std::vector<std::string> answers, all_classes;
  std::int64_t length = 0;
};

/// One file and what upstream's configuration says of its data set.
struct LongBenchFile {
  const LongBenchDataset* dataset = nullptr;
  std::vector<LongBenchRecord> records;
  std::vector<std::uint32_t> documents;  // of each record its context's number: number_documents()
  std::string prompt;                    // with {context} and {input}
  std::uint32_t max_new_tokens = 0;
  std::uint64_t hash = 0;  // of the file and these two
  std::size_t size() const { return records.size(); }
};

/// A task's name without "_e".
std::string_view longbench_dataset_of(std::string_view task);

/// The lines of one file; `file` is for error sentences, which name the line and the field. Empty lines are skipped.
std::vector<LongBenchRecord> parse_longbench(std::string_view text, const std::string& file);

/// A prompt with a record's fields in the place of their names in braces; "{{" and "}}" are braces. InputError for
/// other names.
std::string longbench_prompt(std::string_view prompt, const LongBenchRecord& record);

/// The files of these tasks ("qasper", "qasper_e"), and no other is opened; none given: all that are there, in
/// upstream's order, those of LongBench-E only where there is nothing else. InputError, naming file, line and field.
std::map<std::string, LongBenchFile> read_longbench(const std::filesystem::path& folder,
                                                    std::vector<std::string>& tasks);

/// The .jsonl files of a folder that are not read where no tasks are given: of no data set, or LongBench-E's beside
/// others.
std::vector<std::filesystem::path> unread_longbench(const std::filesystem::path& folder);

/// What upstream has: 3500 for 4096 positions, 7500 for 8192, 15500 for 16384, 31500 for 32768. For others multiples of
/// 500 that leave room for the longest answers (512 tokens) and a chat template, as the first three do; half the
/// positions of models that have less than 1,076.
std::uint32_t default_max_length(const ModelConfig& config);

/// The prompt of a record as the model is given it, its begin token included.
std::vector<std::int32_t> longbench_tokens(const Tokenizer& tokenizer, const LongBenchFile& file,
                                           const LongBenchRecord& record, std::uint32_t max_length,
                                           const std::optional<ChatWriter>& template_of);

class LongBench final : public FileDataset<LongBenchFile> {
 public:
  /// Reads the files and measures prompts. The model must outlive this. InputError for files that cannot be used, a
  /// data set whose scores need a segmenter that is not installed, and a max_length that leaves no room for answers.
  LongBench(FileChoice choice, const Model& model);

  std::string name() const override { return "longbench"; }
  DatasetSample sample(const std::string& task, std::uint32_t length, std::uint32_t index) const override;
  std::vector<Score> scores(std::span<const DatasetSample> samples,
                            std::span<const std::string> predictions) const override;

 private:
  std::string protocol_part() const override;
  FigureTable figures(const RunFolder& folder, const Summary& summary) const override;
  /// Encodes every text that could have as many tokens as the longest.
  std::uint32_t measure_longest() const;

  std::uint32_t room_ = 0;  // tokens that a prompt may have beyond max_length
};

}  // namespace tandem::eval
