#include "eval/reasoning/reasoning.h"

#include <algorithm>
#include <fmt/ranges.h>

#include "engine/common/error.h"
#include "engine/runtime/limits.h"
#include "eval/report/table.h"
#include "eval/run/option_values.h"

namespace tandem::eval {
namespace {

/// The seed of one answer's draws.
std::uint64_t seed_of_answer(std::uint64_t seed, std::string_view task, std::uint32_t problem, std::uint32_t repeat) {
  std::uint64_t state = mix64(seed);
  for (const std::uint64_t word : {fnv1a64(task), std::uint64_t{problem}, std::uint64_t{repeat}})
    state = mix64(state ^ word);
  return state;
}

}  // namespace

Reasoning::Reasoning(const ReasoningOptions& options, const Model& model)
    : FileDataset(options, model), options_(options) {
  check_sampling(options.sampling);
  if (options.repeats < 1) throw_input_error("--repeats is 0: ask for at least one answer to each problem.");
  if (options.max_new_tokens < 1) throw_input_error("--max-new is 0: ask for at least one token.");
  if (options.sampling.temperature == 0 && options.repeats > 1) {
    throw_input_error(
        "--repeats is {}, but greedy answers to a problem are all the same: add --temperature above 0, 0.6 for "
        "example.",
        options.repeats);
  }
  files_ = read_reasoning(options.data, choice_.tasks);
  for (const std::string& task : choice_.tasks) {
    for (std::uint32_t i = 0; i < FileDataset::samples_of(task); ++i) {
      const auto tokens = static_cast<std::uint32_t>(prompt_of(file(task).problems[i]).size());
      longest_prompt_ = std::max(longest_prompt_, tokens);
      if (tokens + std::uint64_t{options.max_new_tokens} <= model.config.max_positions) continue;
      throw_input_error(
          "--max-new {} leaves no room for problem {} of {}, which has {} tokens: model '{}' has {} positions.{}",
          options.max_new_tokens, i + 1, task, tokens, model.name, model.config.max_positions,
          tokens < model.config.max_positions
              ? fmt::format(" At most {} can be generated there.", model.config.max_positions - tokens)
              : "");
    }
  }
}

std::vector<std::int32_t> Reasoning::prompt_of(const ReasoningProblem& problem) const {
  check_text_fits(model_, problem.prompt, "A problem of --data");
  return user_prompt(*model_.tokenizer, choice_.template_of, problem.prompt, options_.thinking);
}

DatasetSample Reasoning::sample(const std::string& task, std::uint32_t length, std::uint32_t index) const {
  const std::uint32_t problem = index / options_.repeats, repeat = index % options_.repeats;
  const ReasoningProblem& asked = file(task).problems.at(problem);
  DatasetSample sample = {.task = task,
                          .length = length,
                          .index = index,
                          .prompt = prompt_of(asked),
                          .answers = {asked.answer},
                          .max_new_tokens = options_.max_new_tokens,
                          .sampling = options_.sampling,
                          .cut_is_wrong = true};
  sample.sampling.seed = seed_of_answer(options_.sampling.seed, task, problem, repeat);
  return sample;
}

Score Reasoning::score(const DatasetSample& sample, const std::string& prediction) const {
  Graded graded = grade_answer(prediction, sample.answers.front(), file(sample.task).kind);
  return {graded.score, std::move(graded.rule), std::move(graded.by_rule)};
}

std::string Reasoning::protocol_part() const {
  const Sampling& how = options_.sampling;
  const std::string drawn = how.temperature == 0 ? "greedy"
                                                 : fmt::format("temperature-{}-top-k-{}-top-p-{}-min-p-{}",
                                                               how.temperature, how.top_k, how.top_p, how.min_p);
  return fmt::format("{}+draw:{}+answers:{}+max-new:{}+score:{}", options_.thinking ? "" : "-no-thinking", drawn,
                     options_.repeats, options_.max_new_tokens, kGrader);
}

std::string Reasoning::arguments() const {
  const std::string some = choice_.samples == 0 ? "" : fmt::format(" --samples {}", choice_.samples);
  std::string drawn;
  if (const Sampling& how = options_.sampling; how.temperature > 0) {
    drawn = fmt::format(" --repeats {} --temperature {} --top-k {} --top-p {} --min-p {} --seed {}", options_.repeats,
                        how.temperature, how.top_k, how.top_p, how.min_p, how.seed);
  }
  return fmt::format(" --tasks {} --max-new {}{}{}", shell_word(fmt::format("{}", fmt::join(choice_.tasks, ","))),
                     length_text(options_.max_new_tokens), some, drawn);
}

}  // namespace tandem::eval
