#include "eval/reasoning/reasoning.h"

#include <algorithm>
#include <fmt/format.h>

#include "engine/common/error.h"
#include "engine/runtime/limits.h"
#include "eval/report/table.h"
#include "eval/ruler/random.h"
#include "eval/run/dataset_files.h"
#include "eval/run/option_values.h"

namespace tandem::eval {
namespace {

std::string drawing_text(const Sampling& how) {
  if (how.temperature == 0) return "greedy";
  return fmt::format("temperature-{}-top-k-{}-top-p-{}-min-p-{}", how.temperature, how.top_k, how.top_p, how.min_p);
}

}  // namespace

std::uint64_t seed_of_answer(std::uint64_t seed, std::string_view task, std::uint32_t problem, std::uint32_t repeat) {
  std::uint64_t state = mix64(seed);
  for (const std::uint64_t word : {fnv1a64(task), std::uint64_t{problem}, std::uint64_t{repeat}})
    state = mix64(state ^ word);
  return state;
}

Reasoning::Reasoning(ReasoningOptions options, const Model& model) : options_(std::move(options)), model_(model) {
  check_sampling(options_.sampling);
  if (options_.repeats < 1) throw_input_error("--repeats is 0: ask for at least one answer to each problem.");
  if (options_.max_new_tokens < 1) throw_input_error("--max-new is 0: ask for at least one token.");
  if (options_.sampling.temperature == 0 && options_.repeats > 1) {
    throw_input_error(
        "--repeats is {}, but greedy answers to a problem are all the same: add --temperature above 0, 0.6 for "
        "example.",
        options_.repeats);
  }
  files_ = read_reasoning(options_.data, options_.tasks);
  for (const std::string& task : options_.tasks) {
    for (std::uint32_t i = 0; i < problems_of(task); ++i) {
      const auto tokens = static_cast<std::uint32_t>(prompt_of(files_.at(task).problems[i]).size());
      longest_prompt_ = std::max(longest_prompt_, tokens);
      if (tokens + std::uint64_t{options_.max_new_tokens} <= model.config.max_positions) continue;
      throw_input_error(
          "--max-new {} leaves no room for problem {} of {}, which has {} tokens: model '{}' has {} positions.{}",
          options_.max_new_tokens, i + 1, task, tokens, model.name, model.config.max_positions,
          tokens < model.config.max_positions
              ? fmt::format(" At most {} can be generated there.", model.config.max_positions - tokens)
              : "");
    }
  }
}

std::uint32_t Reasoning::problems_of(const std::string& task) const {
  return first_samples(options_.samples, files_.at(task).problems.size());
}

std::vector<std::int32_t> Reasoning::prompt_of(const ReasoningProblem& problem) const {
  check_text_fits(model_, problem.prompt, "A problem of --data");
  if (!options_.template_of) return model_.tokenizer->encode(problem.prompt, /*add_bos=*/true);
  const ChatMessage message{"user", problem.prompt};
  ChatOptions chat;
  chat.thinking = options_.thinking;
  return model_.tokenizer->encode(options_.template_of->write({&message, 1}, chat), /*add_bos=*/false,
                                  Specials::parsed);
}

DatasetSample Reasoning::sample(const std::string& task, std::uint32_t length, std::uint32_t index) const {
  const std::uint32_t problem = index / options_.repeats, repeat = index % options_.repeats;
  const ReasoningProblem& asked = files_.at(task).problems.at(problem);
  DatasetSample sample;
  sample.task = task;
  sample.length = length;
  sample.index = index;
  sample.prompt = prompt_of(asked);
  sample.answers = {asked.answer};
  sample.max_new_tokens = options_.max_new_tokens;
  sample.sampling = options_.sampling;
  sample.sampling.seed = seed_of_answer(options_.sampling.seed, task, problem, repeat);
  sample.cut_is_wrong = true;
  return sample;
}

Score Reasoning::score(const DatasetSample& sample, const std::string& prediction) const {
  Graded graded = grade_answer(prediction, sample.answers.front(), kind_of(sample.task));
  return {graded.score, std::move(graded.rule), std::move(graded.by_rule)};
}

std::string Reasoning::protocol_id(const Manifest& manifest) const {
  const std::string chat = template_name(options_.template_of) + (options_.thinking ? "" : "-no-thinking");
  return fmt::format("reasoning/v1+data:{}+tok:{}+template:{}+draw:{}+answers:{}+max-new:{}+score:{}{}",
                     files_hash(files_), manifest.tokenizer_hash, chat, drawing_text(options_.sampling),
                     options_.repeats, options_.max_new_tokens, kGrader, protocol_end(manifest));
}

std::string Reasoning::arguments() const {
  const std::string some = options_.samples == 0 ? "" : fmt::format(" --samples {}", options_.samples);
  std::string drawn;
  if (const Sampling& how = options_.sampling; how.temperature > 0) {
    drawn = fmt::format(" --repeats {} --temperature {} --top-k {} --top-p {} --min-p {} --seed {}", options_.repeats,
                        how.temperature, how.top_k, how.top_p, how.min_p, how.seed);
  }
  return fmt::format(" --tasks {} --max-new {}{}{}", shell_word(fmt::format("{}", fmt::join(options_.tasks, ","))),
                     length_text(options_.max_new_tokens), some, drawn);
}

}  // namespace tandem::eval
