// Reasoning sets as a benchmark (eval/run/benchmark.h): Pass@1 on problems with one final answer, greedily or as the
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
#include "eval/run/benchmark.h"

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

class Reasoning final : public Benchmark {
 public:
  /// Reads the files. The model must outlive this. InputError for files that cannot be used, several greedy answers,
  /// and problems whose answers have no room.
  Reasoning(ReasoningOptions options, const Model& model);

  std::string name() const override { return kName; }
  BenchmarkSample sample(const std::string& task, std::uint32_t length, std::uint32_t index) const override;
  std::string prediction(std::span<const std::int32_t> tokens) const override;
  std::vector<Score> scores(std::span<const BenchmarkSample> samples,
                            std::span<const std::string> predictions) const override;

  const ReasoningOptions& options() const { return options_; }
  const std::vector<std::string>& tasks() const { return options_.tasks; }
  std::uint32_t problems_of(const std::string& task) const;
  AnswerKind kind_of(const std::string& task) const { return files_.at(task).kind; }
  std::uint32_t longest_prompt() const { return longest_prompt_; }  // tokens

  /// The manifest's entries that follow from the benchmark and the methods; its tokenizer is set already.
  void fill_manifest(const std::vector<std::string>& methods, Manifest& manifest) const;

  static constexpr const char* kName = "reasoning";

 private:
  std::vector<std::int32_t> prompt_of(const ReasoningProblem& problem) const;
  std::string hash() const;

  ReasoningOptions options_;
  const Model& model_;
  std::map<std::string, ReasoningFile> files_;
  std::uint32_t longest_prompt_ = 0;
};

}  // namespace tandem::eval
