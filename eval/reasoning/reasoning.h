// Reasoning sets as a dataset (eval/run/dataset.h): Pass@1 on problems with one final answer, greedily or as the
// mean over answers that are drawn. A file has a JSON object per line:
//   {"prompt": "...", "answer": 204}     the answer: text or a number
// Its name is the task, and how it begins says what answers are: aime24.jsonl (whole numbers), gsm8k.jsonl (numbers;
// "#### 18" ends the answer), gpqa_diamond.jsonl ("\boxed{D}"), math500.jsonl (LaTeX). Other fields are not looked at.
//
// Sample q * repeats + r is answer r to problem q. Its random numbers follow from the seed, the task, q, r and the
// token's position: they are the same with every method, in every batch, for any number of problems and answers, and
// after --resume. An answer of max_new_tokens is cut off and wrong, whatever it says.
//
// The protocol id is FileDataset's, the template of which may be qwen3-no-thinking, with
//   +draw:<greedy, or temperature-0.6-top-k-0-top-p-0.95-min-p-0>+answers:<to each problem>+max-new:<tokens>
//   +score:<grader>
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/kernels/sampling.h"
#include "eval/answers/rules.h"
#include "eval/run/file_dataset.h"

namespace tandem::eval {

struct ReasoningProblem {
  std::string prompt;
  std::string answer;  // the final one alone
};

struct ReasoningFile {
  AnswerKind kind = AnswerKind::expression;
  std::vector<ReasoningProblem> problems;
  std::uint64_t hash = 0;  // of the file
  std::size_t size() const { return problems.size(); }
};

/// By the beginning of the task's name. InputError for another one.
AnswerKind answer_kind_of(std::string_view task);

/// The lines of one file; `file` is for error sentences, which name the line and the field. Empty lines are skipped,
/// and a prompt that is there twice is refused.
std::vector<ReasoningProblem> parse_reasoning(std::string_view text, AnswerKind kind, const std::string& file);

/// `data`: a folder, a .jsonl, or several .jsonl with commas between. Of a folder the files of these tasks, and no
/// other is opened; none given: all that are there, by name. InputError, naming file, line and field.
std::map<std::string, ReasoningFile> read_reasoning(const std::string& data, std::vector<std::string>& tasks);

/// The .jsonl files of a folder that no task is read from, since their names do not say what their answers are.
std::vector<std::filesystem::path> unread_reasoning(const std::string& data);

struct ReasoningOptions : FileChoice {  // `samples`: problems
  std::uint32_t repeats = 1;            // answers to each problem
  std::uint32_t max_new_tokens = 4096;
  Sampling sampling = {};  // temperature 0: greedy, one answer
  bool thinking = true;    // ChatOptions::thinking
};

class Reasoning final : public FileDataset<ReasoningFile> {
 public:
  /// Reads the files. The model must outlive this. InputError for files that cannot be used, several greedy answers,
  /// and problems whose answers have no room.
  Reasoning(const ReasoningOptions& options, const Model& model);

  std::string name() const override { return "reasoning"; }
  std::uint32_t samples_of(const std::string& task) const override {
    return FileDataset::samples_of(task) * options_.repeats;
  }
  std::uint64_t seed() const override { return options_.sampling.seed; }
  std::string arguments() const override;
  DatasetSample sample(const std::string& task, std::uint32_t length, std::uint32_t index) const override;
  Score score(const DatasetSample& sample, const std::string& prediction) const override;

  std::string own_section(const RunFolder& folder, const Summary& summary, bool markdown) const override;
  std::string own_json(const RunFolder& folder, const Summary& summary) const override;

 private:
  struct Point;
  std::vector<Point> points_of(const RunFolder& folder, const Summary& summary) const;
  std::string protocol_part() const override;
  std::vector<std::int32_t> prompt_of(const ReasoningProblem& problem) const;

  const ReasoningOptions options_;
};

/// Figures of one task and method.
struct ReasoningFigures {
  std::uint64_t answers = 0, tokens = 0;         // generated
  std::uint64_t cut = 0;                         // answers of all the tokens that may be generated: wrong
  std::uint64_t without_answer = 0;              // ended, but with no final answer in it: wrong
  std::map<std::string, std::uint64_t> decided;  // answers by the rule that found them, cut ones included
  std::map<std::string, double> by_rule;         // mean score by each published rule alone, cut ones included
  std::optional<double> context;                 // tokens of context of a decode step, mean over steps, if any
  std::vector<std::uint64_t> steps;              // decode steps by their tokens of context
};

/// Answers of one task and method.
ReasoningFigures reasoning_figures(const std::vector<SampleResult>& answers, std::uint32_t max_new_tokens);

}  // namespace tandem::eval
