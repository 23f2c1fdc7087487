#include "eval/run/prompt_dataset.h"

#include <algorithm>

#include "engine/common/error.h"
#include "engine/common/interrupt.h"
#include "engine/runtime/limits.h"

namespace tandem::eval {
namespace {

class PromptDataset final : public FileDataset<PromptFile> {
 public:
  PromptDataset(const PromptRules& rules, const FileChoice& choice, const Model& model)
      : FileDataset(choice, model), rules_(rules) {
    files_ = rules.read(choice.data, choice_.tasks);
    for (const std::string& task : choice_.tasks) {
      for (std::uint32_t i = 0; i < samples_of(task); ++i) {
        stop_if_interrupted();
        const auto tokens = static_cast<std::uint32_t>(prompt_of(file(task).samples[i]).size());
        longest_prompt_ = std::max(longest_prompt_, tokens);
        const std::uint32_t answer = file(task).max_new_tokens, positions = model_.config.max_positions;
        if (tokens + answer > positions)
          throw_input_error(
              "Sample {} of {} has {} tokens and {} are generated, more than the {} positions of model '{}' "
              "(max_position_embeddings): ask shorter --tasks, or a model with more positions.",
              i + 1, task, tokens, answer, positions, model_.name);
      }
    }
  }

  std::string name() const override { return rules_.name; }
  DatasetSample sample(const std::string& task, std::uint32_t length, std::uint32_t index) const override {
    const PromptSample& asked = file(task).samples.at(index);
    return {.task = task,
            .length = length,
            .index = index,
            .prompt = prompt_of(asked),
            .answers = {asked.reference},
            .max_new_tokens = file(task).max_new_tokens};
  }
  Score score(const DatasetSample& sample, const std::string& prediction) const override {
    Score all;
    all.by_rule = rules_.scores(sample.task, sample.answers.front(), prediction);
    for (auto& [metric, value] : all.by_rule) value = std::max(value, 0.0);
    all.value = all.by_rule.front().second;
    return all;
  }

 private:
  std::string protocol_part() const override { return rules_.protocol; }

  FigureTable figures(const RunFolder& folder, const Summary&) const override {
    FigureTable table{rules_.title, {"task", "metric"}, {}, {rules_.note}, /*lists_all=*/false};
    for (const auto& [task, by_method] : samples_by_task(folder)) {
      std::map<std::string, FigureRow> rows;  // by metric
      for (const auto& [label, samples] : by_method) {
        std::map<std::string, std::uint64_t> scored;  // samples, by metric
        for (const SampleResult& sample : samples)
          for (const auto& [metric, score] : sample.by_rule) rows[metric].figures[label] += score, ++scored[metric];
        for (const auto& [metric, count] : scored)
          rows[metric].figures[label] = 100 * rows[metric].figures[label] / static_cast<double>(count);
      }
      for (auto& [metric, row] : rows) table.rows.push_back({{task, metric}, task, metric, std::move(row.figures)});
    }
    return table;
  }

  std::vector<std::int32_t> prompt_of(const PromptSample& sample) const {
    check_text_fits(model_, sample.prompt, "A prompt of --data");
    return user_prompt(*model_.tokenizer, choice_.template_of, sample.prompt);
  }

  const PromptRules rules_;
};

}  // namespace

std::unique_ptr<DatasetCommand> prompt_command(const PromptRules& rules, const char* tasks_help) {
  return file_command({.tasks = tasks_help,
                       .check_task = rules.check_task,
                       .open = [rules](const FileChoice& choice, const Model& model) {
                         return std::make_unique<PromptDataset>(rules, choice, model);
                       }});
}

}  // namespace tandem::eval
