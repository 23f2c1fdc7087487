#include "cli/task_names.h"

#include <algorithm>
#include <fmt/ranges.h>
#include <optional>
#include <string_view>

#include "cli/input.h"
#include "cli/output.h"

namespace tandem::cli {
namespace {

struct OwnName {
  std::string dataset, task;
};

struct TaskName {
  std::string_view harness, dataset, task;
};
/// One per task; longbench_<data set> and RULER's niah_* follow a rule.
constexpr TaskName kTaskNames[] = {
    {"ruler_vt", "ruler", "vt"},
    {"ruler_cwe", "ruler", "cwe"},
    {"ruler_fwe", "ruler", "fwe"},
    {"ruler_qa_squad", "ruler", "qa_1"},
    {"ruler_qa_hotpot", "ruler", "qa_2"},
    {"aime24", "reasoning", "aime24"},
    {"aime25", "reasoning", "aime25"},
    {"gsm8k", "reasoning", "gsm8k"},
    {"gsm8k_cot", "reasoning", "gsm8k"},
    {"gsm8k_cot_zeroshot", "reasoning", "gsm8k"},
    {"gsm8k_cot_llama", "reasoning", "gsm8k"},
    {"gpqa_diamond_zeroshot", "reasoning", "gpqa_diamond"},
    {"gpqa_diamond_n_shot", "reasoning", "gpqa_diamond"},
    {"gpqa_diamond_cot_zeroshot", "reasoning", "gpqa_diamond"},
    {"gpqa_diamond_cot_n_shot", "reasoning", "gpqa_diamond"},
    {"gpqa_diamond_generative_n_shot", "reasoning", "gpqa_diamond"},
    {"minerva_math500", "reasoning", "math500"},
    {"hendrycks_math500", "reasoning", "math500"},
};
constexpr std::string_view kLongBench = "longbench_", kNeedles = "niah_";

std::optional<OwnName> own_name(const std::string& harness) {
  if (harness.starts_with(kLongBench)) return OwnName{"longbench", harness.substr(kLongBench.size())};
  if (harness.starts_with(kNeedles)) return OwnName{"ruler", harness};
  const auto found = std::ranges::find(kTaskNames, harness, &TaskName::harness);
  if (found == std::end(kTaskNames)) return std::nullopt;
  return OwnName{std::string(found->dataset), std::string(found->task)};
}

void say_understood(const std::string& given, const std::string& dataset, const std::string& tasks) {
  say(fmt::format("lm-evaluation-harness's {} is taken for: tandem eval {} --tasks {}", given, dataset, tasks));
}

/// Replaces eval's first word by a dataset and --tasks where all of its names are tasks of one dataset.
void replace_dataset(std::vector<std::string>& words) {
  const std::string given = words[1];
  std::string dataset;
  std::vector<std::string> tasks;
  for (const std::string& item : split_at_commas(given)) {
    const std::optional<OwnName> own = own_name(item);
    if (!own || (!dataset.empty() && own->dataset != dataset)) return;
    dataset = own->dataset;
    if (std::ranges::find(tasks, own->task) == tasks.end()) tasks.push_back(own->task);
  }
  const std::string list = fmt::format("{}", fmt::join(tasks, ","));
  words[1] = dataset;
  words.insert(words.begin() + 2, {"--tasks", list});
  say_understood(given, dataset, list);
}

/// Replaces names in the value of --tasks. A name that begins like the task may be that of a file of the user's.
void replace_tasks(std::string& list, std::string_view dataset) {
  std::vector<std::string> items = split_at_commas(list);
  for (std::string& item : items) {
    const std::optional<OwnName> own = own_name(item);
    if (!own || own->dataset != dataset || item.starts_with(own->task)) continue;
    say_understood(item, own->dataset, own->task);
    item = own->task;
  }
  list = fmt::format("{}", fmt::join(items, ","));
}

}  // namespace

std::vector<std::string> with_own_task_names(std::vector<std::string> words) {
  const bool compares = !words.empty() && words[0] == "compare";
  if (!compares && (words.size() < 2 || words[0] != "eval")) return words;
  if (!compares) {
    if (words[1] == "--tasks" && words.size() > 2) words.erase(words.begin() + 1);
    replace_dataset(words);
  }
  const std::string dataset = compares ? "ruler" : words[1];
  constexpr std::string_view kOption = "--tasks";
  for (std::size_t i = 1; i < words.size(); ++i) {
    std::string& word = words[i];
    if (word == kOption && i + 1 < words.size()) {
      replace_tasks(words[i + 1], dataset);
    } else if (word.starts_with(kOption) && word.substr(kOption.size()).starts_with('=')) {
      std::string list = word.substr(kOption.size() + 1);
      replace_tasks(list, dataset);
      word = fmt::format("{}={}", kOption, list);
    }
  }
  return words;
}

}  // namespace tandem::cli
