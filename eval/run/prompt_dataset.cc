#include "eval/run/prompt_dataset.h"

#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "engine/common/error.h"
#include "engine/common/interrupt.h"
#include "engine/common/json.h"
#include "engine/runtime/limits.h"
#include "eval/report/table.h"
#include "eval/run/dataset_files.h"
#include "eval/run/option_values.h"

namespace tandem::eval {
namespace {

struct Mean {
  double sum = 0;
  std::uint64_t n = 0;
  double value() const { return 100 * sum / static_cast<double>(n); }
};

/// By task, metric and method, in per cent.
using Means = std::map<std::string, std::map<std::string, std::map<std::string, Mean>>>;

Means means_of(const RunFolder& folder) {
  Means means;
  for (const SampleResult& sample : folder.samples()) {
    for (const auto& [metric, score] : sample.by_rule) {
      Mean& mean = means[sample.task][metric][sample.method];
      mean.sum += score;
      ++mean.n;
    }
  }
  return means;
}

class PromptDataset final : public Dataset {
 public:
  PromptDataset(const PromptRules& rules, const std::filesystem::path& data, std::vector<std::string> tasks,
                std::uint32_t samples, const DatasetSetting& with)
      : rules_(rules), tasks_(std::move(tasks)), samples_(samples), template_of_(with.template_of), model_(with.model) {
    files_ = rules.read(data, tasks_);
    for (const std::string& task : tasks_) {
      for (std::uint32_t i = 0; i < samples_of(task); ++i) {
        stop_if_interrupted();
        const auto tokens = static_cast<std::uint32_t>(prompt_of(files_.at(task).samples[i]).size());
        longest_prompt_ = std::max(longest_prompt_, tokens);
        const std::uint32_t answer = files_.at(task).max_new_tokens, positions = model_.config.max_positions;
        if (tokens + answer > positions)
          throw_input_error(
              "Sample {} of {} has {} tokens and {} are generated, more than the {} positions of model '{}' "
              "(max_position_embeddings): ask shorter --tasks, or a model with more positions.",
              i + 1, task, tokens, answer, positions, model_.name);
      }
    }
  }

  std::string name() const override { return rules_.name; }
  std::vector<std::string> tasks() const override { return tasks_; }
  std::uint32_t samples_of(const std::string& task) const override {
    return first_samples(samples_, files_.at(task).samples.size());
  }
  std::string protocol_id(const Manifest& manifest) const override {
    return fmt::format("{}+data:{}+tok:{}+template:{}+score:upstream{}", rules_.protocol, files_hash(files_),
                       manifest.tokenizer_hash, template_name(template_of_), protocol_end(manifest));
  }
  std::string arguments() const override { return task_arguments(tasks_, samples_); }

  DatasetSample sample(const std::string& task, std::uint32_t length, std::uint32_t index) const override {
    const PromptFile& file = files_.at(task);
    const PromptSample& asked = file.samples.at(index);
    return {.task = task,
            .length = length,
            .index = index,
            .prompt = prompt_of(asked),
            .answers = {asked.reference},
            .max_new_tokens = file.max_new_tokens};
  }
  std::uint32_t longest_prompt() const override { return longest_prompt_; }
  Score score(const DatasetSample& sample, const std::string& prediction) const override {
    Score all;
    all.by_rule = rules_.scores(sample.task, sample.answers.front(), prediction);
    for (auto& [metric, value] : all.by_rule) value = std::max(value, 0.0);
    all.value = all.by_rule.front().second;
    return all;
  }

  std::string own_section(const RunFolder& folder, const Summary& summary, bool markdown) const override {
    const Means means = means_of(folder);
    Table table;
    table.head = {"task", "metric"};
    table.leading = 2;
    for (const std::string& label : labels_of(summary, markdown)) table.head.push_back(label);
    for (const auto& [task, metrics] : means) {
      for (const auto& [metric, by_method] : metrics) {
        std::vector<std::string>& row = table.rows.emplace_back(std::vector<std::string>{task, metric});
        for (const MethodSummary& method : summary.methods) {
          const auto found = by_method.find(method.label);
          row.push_back(found == by_method.end() ? "-" : fmt::format("{:.2f}", found->second.value()));
        }
      }
    }
    return section(rules_.title, markdown) + text_of(table, markdown) + note(rules_.note, markdown);
  }

  std::string own_json(const RunFolder& folder, const Summary&) const override {
    nlohmann::ordered_json json;
    json["protocol_id"] = folder.manifest().protocol_id;
    for (const auto& [task, metrics] : means_of(folder))
      for (const auto& [metric, by_method] : metrics)
        for (const auto& [method, mean] : by_method) json["methods"][method][task][metric] = mean.value();
    return json_text(json, 2) + "\n";
  }

 private:
  std::vector<std::int32_t> prompt_of(const PromptSample& sample) const {
    check_text_fits(model_, sample.prompt, "A prompt of --data");
    if (!template_of_) return model_.tokenizer->encode(sample.prompt, /*add_bos=*/true);
    const ChatMessage message{"user", sample.prompt};
    return model_.tokenizer->encode(template_of_->write({&message, 1}, {.thinking = false}), /*add_bos=*/false,
                                    Specials::parsed);
  }

  const PromptRules rules_;
  std::vector<std::string> tasks_;
  std::uint32_t samples_;
  std::optional<ChatWriter> template_of_;
  const Model& model_;
  std::map<std::string, PromptFile> files_;
  std::uint32_t longest_prompt_ = 0;
};

class PromptCommand final : public DatasetCommand {
 public:
  PromptCommand(const PromptRules& rules, const char* tasks_help) : rules_(rules), tasks_help_(tasks_help) {
    chat.emplace();
  }

  std::vector<DatasetOption> options() override {
    return {{"--tasks", &tasks_, tasks_help_}, {"--samples", &samples_, "First samples of each task [all]"}};
  }
  void check(const DatasetHost&) override {
    check_first_samples(samples_);
    chosen_ = chosen_tasks(tasks_, rules_.check_task);
  }
  std::unique_ptr<Dataset> open(const DatasetSetting& with) override {
    return std::make_unique<PromptDataset>(rules_, data, chosen_, samples_.value_or(0), with);
  }

 private:
  const PromptRules rules_;
  const char* tasks_help_;
  std::string tasks_;
  std::vector<std::string> chosen_;
  std::optional<std::uint32_t> samples_;  // none: all
};

}  // namespace

std::unique_ptr<DatasetCommand> prompt_command(const PromptRules& rules, const char* tasks_help) {
  return std::make_unique<PromptCommand>(rules, tasks_help);
}

}  // namespace tandem::eval
