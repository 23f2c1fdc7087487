// Reasoning sets as a dataset (eval/run/dataset.h): Pass@1 on problems with one final answer, greedily or as the
// mean over answers that are drawn.
//
// Sample q * repeats + r is answer r to problem q. Its random numbers follow from the seed, the task, q, r and the
// token's position: they are the same with every method, in every batch, for any number of problems and answers, and
// after --resume. An answer of max_new_tokens is cut off and wrong, whatever it says.
//
// What two scores have to share is in the protocol id:
//   reasoning/v1+data:<hash>+tok:<hash>+template:<none, or a chat format; qwen3-no-thinking>+draw:<greedy, or
//   temperature-0.6-top-k-0-top-p-0.95-min-p-0>+answers:<to each problem>+max-new:<tokens>+score:<grader>
//   +budget:<as ruler's>+query:aware+question:in-prefill+eos:stops
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/kernels/sampling.h"
#include "engine/model/chat.h"
#include "engine/model/model.h"
#include "eval/reasoning/files.h"
#include "eval/report/schema.h"
#include "eval/run/dataset.h"

namespace tandem::eval {

struct ReasoningOptions {
  std::string data;                // as read_reasoning() takes it
  std::vector<std::string> tasks;  // "aime24"; none: all that are there
  std::uint32_t samples = 0;       // problems of each task, its first ones; 0: all
  std::uint32_t repeats = 1;       // answers to each problem
  std::uint32_t max_new_tokens = 4096;
  Sampling sampling = {};  // temperature 0: greedy, one answer
  std::optional<ChatWriter> template_of = {};
  bool thinking = true;  // ChatOptions::thinking
};

/// The seed of one answer's draws.
std::uint64_t seed_of_answer(std::uint64_t seed, std::string_view task, std::uint32_t problem, std::uint32_t repeat);

class Reasoning final : public Dataset {
 public:
  /// Reads the files. The model must outlive this. InputError for files that cannot be used, several greedy answers,
  /// and problems whose answers have no room.
  Reasoning(ReasoningOptions options, const Model& model);

  std::string name() const override { return kName; }
  std::vector<std::string> tasks() const override { return options_.tasks; }
  std::uint32_t samples_of(const std::string& task) const override { return problems_of(task) * options_.repeats; }
  std::uint64_t seed() const override { return options_.sampling.seed; }
  std::string protocol_id(const Manifest& manifest) const override;
  std::string arguments() const override;
  DatasetSample sample(const std::string& task, std::uint32_t length, std::uint32_t index) const override;
  Score score(const DatasetSample& sample, const std::string& prediction) const override;

  const ReasoningOptions& options() const { return options_; }
  std::uint32_t problems_of(const std::string& task) const;
  AnswerKind kind_of(const std::string& task) const { return files_.at(task).kind; }
  std::uint32_t longest_prompt() const override { return longest_prompt_; }

  std::string own_section(const RunFolder& folder, const Summary& summary, bool markdown) const override;
  std::string own_json(const RunFolder& folder, const Summary& summary) const override;

  static constexpr const char* kName = "reasoning";

 private:
  std::vector<std::int32_t> prompt_of(const ReasoningProblem& problem) const;

  ReasoningOptions options_;
  const Model& model_;
  std::map<std::string, ReasoningFile> files_;
  std::uint32_t longest_prompt_ = 0;
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
