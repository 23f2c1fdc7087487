// L-Eval (An et al. 2023, arXiv 2307.11088) as a dataset (eval/run/dataset.h), from its published files:
//   Closed-ended-tasks/<data set>.jsonl, Open-ended-tasks/<data set>.jsonl     in a folder, or beside each other in it
// A line is one document, "input", with questions to it, "instructions", and their answers, "outputs"; each question is
// a sample, asked with the whole document. "evaluation" says how: exam, f1, rouge; documents for a judge alone (LLM,
// human) are left out, as upstream's auto_eval.py leaves them out.
//
// Instructions, context and truncation are those of upstream's Baselines/llama2-chat-test.py (OpenLMLab/LEval,
// cd34b05): a document of more than max_length tokens keeps its first max_length words (codeU: its last), 250 fewer
// each time that this was too much. Open questions ask for as many words as the right answer has. 512 tokens are
// generated, greedily. Without a chat template the instruction stands before the document, as in longchat-test.py's
// plain form; with Llama 2's the prompt is upstream's to the letter, and with another the instruction is the system
// message.
//
// What is left to say so that two scores can be compared is in the protocol id:
//   leval/v1+data:<hash>+tok:<hash>+template:<none, a chat format, or folder-<hash>>
//   +length:first-words-<max_length>+score:upstream+budget:<as ruler's>+query:aware+question:in-prefill+eos:stops
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/common/interrupt.h"
#include "engine/model/chat.h"
#include "engine/model/model.h"
#include "eval/report/schema.h"
#include "eval/run/dataset.h"
#include "eval/scoring/leval.h"

namespace tandem::eval {

struct LEvalQuestion {
  std::size_t document = 0;  // index into LEvalFile::documents
  std::string instruction, answer;
  LEvalKind kind = LEvalKind::f1;
};

struct LEvalFile {
  const LEvalDataset* dataset = nullptr;
  std::vector<std::string> documents;
  std::vector<std::uint32_t> numbers;    // of each question its document's: number_documents()
  std::vector<LEvalQuestion> questions;  // in the file's order
  std::uint64_t hash = 0;
};

/// The .jsonl files of a folder that are not read where no tasks are given: of no data set, or not in the folder of its
/// kind. Not sci_fi's, which cannot be asked.
std::vector<std::filesystem::path> unread_leval(const std::filesystem::path& folder);

/// The documents and questions of one file; `file` is for error sentences, which name the line and the field.
LEvalFile parse_leval(std::string_view text, const LEvalDataset& dataset, const std::string& file);

struct LEvalOptions {
  std::filesystem::path data;
  std::vector<std::string> tasks;  // data sets; none: all that are there
  std::uint32_t samples = 0;       // of each task, its first questions; 0: all
  std::uint32_t max_length = 0;    // tokens of a document; 0: as many as leave room for question, instruction, answer
  std::optional<ChatWriter> template_of = {};
  std::function<void(std::uint64_t, std::uint64_t)> progress = {};  // documents cut, of those that are asked about
  std::function<bool()> interrupted = tandem::interrupted;          // polled while files are read and cut
};

/// Of a document as the model gets it. `tokens`: how many these are, the begin token among them.
std::string cut_leval_document(const Tokenizer& tokenizer, const std::string& document, std::uint32_t max_length,
                               bool from_the_end, std::size_t* tokens = nullptr);

class LEval final : public Dataset {
 public:
  /// Reads the files and cuts their documents. The model must outlive this. InputError for files that cannot be used,
  /// and for a max_length that leaves no room for answers.
  LEval(LEvalOptions options, const Model& model);

  std::string name() const override { return kName; }
  std::vector<std::string> tasks() const override { return options_.tasks; }
  std::uint32_t samples_of(const std::string& task) const override;
  std::string protocol_id(const Manifest& manifest) const override;
  std::string arguments() const override;
  DatasetSample sample(const std::string& task, std::uint32_t length, std::uint32_t index) const override;
  /// Exact match and F1 as upstream's; of a summary ROUGE-L, whose means the report has beside ROUGE-1 and -2.
  Score score(const DatasetSample& sample, const std::string& prediction) const override;

  std::uint32_t max_length() const { return options_.max_length; }
  std::uint32_t documents() const { return documents_; }    // that are asked about
  std::uint32_t cut_documents() const { return cut_; }      // of these, to some of their words
  std::uint32_t empty_documents() const { return empty_; }  // of these, to nothing
  std::uint32_t longest_prompt() const override { return longest_prompt_; }
  const LEvalFile& file(const std::string& task) const { return files_.at(task); }

  std::string own_section(const RunFolder& folder, const Summary& summary, bool markdown) const override;
  std::string own_json(const RunFolder& folder, const Summary& summary) const override;

  static constexpr const char* kName = "leval";
  static constexpr std::uint32_t kMaxNewTokens = 512;

 private:
  void read_files();
  void poll() const;
  /// Tokens of a question with all that is around its document, and of the longest one.
  std::uint32_t around(const LEvalFile& file, std::uint32_t index) const;
  std::uint32_t longest_around() const;
  void cut_documents_of(const std::string& task, std::uint64_t all);

  LEvalOptions options_;
  const Model& model_;
  std::map<std::string, LEvalFile> files_;  // their documents cut
  std::uint32_t longest_prompt_ = 0, documents_ = 0, cut_ = 0, empty_ = 0;
};

/// The prompt of a question whose document is cut already, its begin token included.
std::vector<std::int32_t> leval_tokens(const Tokenizer& tokenizer, const LEvalDataset& dataset,
                                       const std::string& document, const LEvalQuestion& question,
                                       const std::optional<ChatWriter>& template_of);

}  // namespace tandem::eval
