// LongBench as a dataset (eval/run/dataset.h): upstream's prompts, truncation, tokens to generate and scores.
//
// A prompt of more than max_length tokens loses its middle, as upstream's: the first and the last max_length / 2 tokens
// are decoded and joined, and the text is encoded anew, so that a prompt may be some tokens longer or shorter than
// that. A chat template comes around the prompt afterwards, but not for trec, triviaqa, samsum, lsht, lcc and
// repobench-p, which continue a list or a program. Answers are greedy. samsum's end with their line: upstream also
// forbids a first token that ends them, where here an empty first line is text and an end token ends the answer.
//
// What is left to say so that two scores can be compared is in the protocol id:
//   longbench/v1+data:<hash>+tok:<hash>+template:<none, a chat format, or folder-<hash>>
//   +length:cut-middle-<max_length>+score:upstream+budget:<as ruler's>+query:aware+question:in-prefill+eos:stops
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/model/chat.h"
#include "engine/model/model.h"
#include "eval/longbench/files.h"
#include "eval/report/schema.h"
#include "eval/run/dataset.h"

namespace tandem::eval {

struct LongBenchOptions {
  std::filesystem::path data;
  std::vector<std::string> tasks;  // "qasper", "qasper_e"; none: as read_longbench() has it
  std::uint32_t samples = 0;       // of each task, its first ones; 0: all
  std::uint32_t max_length = 0;    // tokens of a prompt; 0: default_max_length()
  std::optional<ChatWriter> template_of = {};
  /// Which of how many texts is measured.
  std::function<void(std::uint64_t done, std::uint64_t total)> progress = {};
};

/// What upstream has: 3500 for 4096 positions, 7500 for 8192, 15500 for 16384, 31500 for 32768. For others multiples of
/// 500 that leave room for the longest answers (512 tokens) and a chat template, as the first three do; half the
/// positions of models that have less than 1,076.
std::uint32_t default_max_length(const ModelConfig& config);

/// The prompt of a record as the model is given it, its begin token included.
std::vector<std::int32_t> longbench_tokens(const Tokenizer& tokenizer, const LongBenchFile& file,
                                           const LongBenchRecord& record, std::uint32_t max_length,
                                           const std::optional<ChatWriter>& template_of);

class LongBench final : public Dataset {
 public:
  /// Reads the files and measures prompts. The model must outlive this. InputError for files that cannot be used, a
  /// data set whose scores need a segmenter that is not installed, and a max_length that leaves no room for answers.
  LongBench(LongBenchOptions options, const Model& model);

  std::string name() const override { return kName; }
  std::vector<std::string> tasks() const override { return options_.tasks; }
  std::uint32_t samples_of(const std::string& task) const override;
  std::string protocol_id(const Manifest& manifest) const override;
  std::string arguments() const override;
  DatasetSample sample(const std::string& task, std::uint32_t length, std::uint32_t index) const override;
  std::vector<Score> scores(std::span<const DatasetSample> samples,
                            std::span<const std::string> predictions) const override;

  std::uint32_t max_length() const { return options_.max_length; }
  std::uint32_t longest_prompt() const override { return longest_prompt_; }
  bool has(const std::string& task) const { return files_.contains(task); }
  const LongBenchFile& file(const std::string& task) const { return files_.at(task); }

  std::string own_section(const RunFolder& folder, const Summary& summary, bool markdown) const override;
  std::string own_json(const RunFolder& folder, const Summary& summary) const override;

  static constexpr const char* kName = "longbench";

 private:
  /// Encodes every text that could have as many tokens as the longest.
  std::uint32_t measure_longest() const;

  LongBenchOptions options_;
  const Model& model_;
  std::map<std::string, LongBenchFile> files_;
  std::uint32_t room_ = 0;  // tokens that a prompt may have beyond max_length
  std::uint32_t longest_prompt_ = 0;
};

}  // namespace tandem::eval
