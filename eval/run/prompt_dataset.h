// The plainest dataset: whole prompts with one reference each, asked as one user message, and a rule that scores an
// answer by one or several metrics. What a dataset of this kind is made of is PromptRules; eval/longproc is one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "eval/run/file_dataset.h"

namespace tandem::eval {

struct PromptSample {
  std::string prompt, reference;
};

struct PromptFile {
  std::vector<PromptSample> samples;
  std::uint32_t max_new_tokens = 0;
  std::uint64_t hash = 0;  // of prompts and references
  std::size_t size() const { return samples.size(); }
};

/// Metrics by name, the sample's score first.
using Metrics = std::vector<std::pair<std::string, double>>;

struct PromptRules {
  const char* name;      // of the dataset
  const char* title;     // of its section in reports
  const char* protocol;  // "+score:upstream": changes with the reader or the rules
  const char* note;      // below its table: what the metrics are
  /// InputError for a name that no task has.
  void (*check_task)(const std::string& task);
  /// The files of these tasks; none given: all that are there, which are put into `tasks`. InputError, naming file and
  /// field.
  std::map<std::string, PromptFile> (*read)(const std::filesystem::path& data, std::vector<std::string>& tasks);
  /// Each in [0, 1]; what is below counts as 0.
  Metrics (*scores)(std::string_view task, std::string_view reference, std::string_view prediction);
};

/// The options --tasks and --samples, and the dataset behind them, whose own table and <name>.json have the mean of
/// every metric by task and method. `tasks_help`: of --tasks.
std::unique_ptr<DatasetCommand> prompt_command(const PromptRules& rules, const char* tasks_help);

}  // namespace tandem::eval
