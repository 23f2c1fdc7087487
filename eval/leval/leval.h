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
// The protocol id is FileDataset's, with +length:first-words-<max_length>+score:upstream.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "eval/run/file_dataset.h"
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
  std::vector<LEvalQuestion> questions;  // in the file's order, all of one kind
  std::uint64_t hash = 0;
  std::size_t size() const { return questions.size(); }
  LEvalKind kind() const { return questions.front().kind; }
};

/// The .jsonl files of a folder that are not read where no tasks are given: of no data set, or not in the folder of its
/// kind. Not sci_fi's, which cannot be asked.
std::vector<std::filesystem::path> unread_leval(const std::filesystem::path& folder);

/// The documents and questions of one file; `file` is for error sentences, which name the line and the field.
LEvalFile parse_leval(std::string_view text, const LEvalDataset& dataset, const std::string& file);

/// Of a document as the model gets it. `tokens`: how many these are, the begin token among them.
std::string cut_leval_document(const Tokenizer& tokenizer, const std::string& document, std::uint32_t max_length,
                               bool from_the_end, std::size_t* tokens = nullptr);

/// The prompt of a question whose document is cut already, its begin token included.
std::vector<std::int32_t> leval_tokens(const Tokenizer& tokenizer, const LEvalDataset& dataset,
                                       const std::string& document, const LEvalQuestion& question,
                                       const std::optional<ChatWriter>& template_of);

class LEval final : public FileDataset<LEvalFile> {
 public:
  /// Reads the files and cuts their documents. The model must outlive this. InputError for files that cannot be used,
  /// and for a max_length that leaves no room for answers.
  LEval(FileChoice choice, const Model& model);

  std::string name() const override { return "leval"; }
  DatasetSample sample(const std::string& task, std::uint32_t length, std::uint32_t index) const override;
  /// Exact match and F1 as upstream's; of a summary ROUGE-L, whose means the report has beside ROUGE-1 and -2.
  Score score(const DatasetSample& sample, const std::string& prediction) const override;

 private:
  std::string protocol_part() const override;
  FigureTable figures(const RunFolder& folder, const Summary& summary) const override;
  /// Tokens of a question with all that is around its document.
  std::uint32_t around(const LEvalFile& file, std::uint32_t index) const;
  void cut_documents_of(const std::string& task, std::uint64_t all);

  std::uint32_t documents_ = 0, cut_ = 0, empty_ = 0;  // asked about; of these cut to some of their words, to nothing
};

}  // namespace tandem::eval
