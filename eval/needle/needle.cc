#include "eval/needle/needle.h"

#include <algorithm>
#include <charconv>
#include <fmt/ranges.h>

#include "engine/common/error.h"
#include "eval/report/table.h"
#include "eval/ruler/protocol.h"
#include "eval/run/decoded.h"
#include "eval/run/option_values.h"

namespace tandem::eval {
namespace {

constexpr std::string_view kDepthPrefix = "depth_";

TokenCounter counter_of(const Model& model) {
  return [&](std::string_view prompt) {
    return static_cast<std::uint32_t>(model.tokenizer->encode(prompt, /*add_bos=*/true).size());
  };
}

}  // namespace

std::string depth_task(std::uint32_t percent) {
  return fmt::format("{}{}", kDepthPrefix, percent);
}

std::uint32_t depth_of_task(std::string_view task) {
  std::uint32_t percent = 0;
  const char* end = task.data() + task.size();
  if (task.starts_with(kDepthPrefix)) {
    const auto read = std::from_chars(task.data() + kDepthPrefix.size(), end, percent);
    if (read.ec == std::errc{} && read.ptr == end && percent <= 100) return percent;
  }
  throw_input_error("The task '{}' is no depth of a needle: those are depth_0 to depth_100.", task);
}

void check_hidden_in_prose(std::string_view task) {
  if (find_one_needle_task(task).haystack != RulerTask::Haystack::prose)
    throw_input_error("--ruler-essays has no place in {}, whose haystack is no prose: give --task niah_single_2.",
                      task);
}

Needle::Needle(NeedleOptions options, const Model& model) : options_(std::move(options)), model_(model) {
  find_one_needle_task(options_.task);
  for (std::size_t i = 0; i < options_.depths.size(); ++i) {
    const std::uint32_t depth = options_.depths[i];
    if (depth > 100) throw_input_error("--depths: {} is more than 100 %.", depth);
    if (std::count(options_.depths.begin(), options_.depths.end(), depth) > 1)
      throw_input_error("--depths: {} is given twice.", depth);
  }
  if (options_.texts.essays != nullptr) check_hidden_in_prose(options_.task);
  for (const std::uint32_t length : options_.lengths) {
    if (length > model.config.max_positions)
      throw_input_error("--lengths: {} is more than the {} positions of model '{}' (max_position_embeddings).", length,
                        model.config.max_positions, model.name);
    for (const std::uint32_t depth : options_.depths)
      check_needle_samples(options_.task, depth, length, options_.samples, options_.seed, counter_of(model),
                           options_.texts);
  }
}

DatasetSample Needle::sample(const std::string& task, std::uint32_t length, std::uint32_t index) const {
  RulerSample made = make_needle_sample(options_.task, depth_of_task(task), length, index, options_.seed,
                                        counter_of(model_), options_.texts);
  return {.task = task,
          .length = length,
          .index = index,
          .prompt = model_.tokenizer->encode(made.prompt, /*add_bos=*/true),
          .answers = std::move(made.answers),
          .max_new_tokens = made.max_new_tokens,
          .depth = made.depth};
}

Score Needle::score(const DatasetSample& sample, const std::string& prediction) const {
  return {ruler_score(find_one_needle_task(options_.task), prediction, sample.answers)};
}

std::uint32_t Needle::longest_prompt() const {
  const std::uint32_t longest = *std::max_element(options_.lengths.begin(), options_.lengths.end());
  return longest - ruler_max_new_tokens(find_one_needle_task(options_.task), longest);
}

std::vector<std::string> Needle::tasks() const {
  std::vector<std::string> tasks;
  tasks.reserve(options_.depths.size());
  for (const std::uint32_t depth : options_.depths) tasks.push_back(depth_task(depth));
  return tasks;
}

std::string Needle::protocol_id(const Manifest& manifest) const {
  RulerProtocol protocol;
  protocol.tokenizer_hash = manifest.tokenizer_hash;
  protocol.texts = options_.texts;
  protocol.budget = budget_meanings(manifest.methods);
  std::string id = fmt::format("needle/v2+task:{}", options_.task);
  for (const auto& [field, value] : ruler_protocol_fields(ruler_protocol_id(protocol)))
    id += fmt::format("+{}:{}", field == "variant" ? "source" : field, value);
  return id;
}

std::string Needle::arguments() const {
  std::vector<std::string> lengths;  // as parsed: a run made with 1024 is resumed with 1K
  lengths.reserve(options_.lengths.size());
  for (const std::uint32_t length : options_.lengths) lengths.push_back(length_text(length));
  const std::string essays = options_.essays.empty() ? "" : " --ruler-essays " + shell_word(options_.essays);
  return fmt::format(" --task {}{} --lengths {} --depths {} --samples {} --seed {}", options_.task, essays,
                     fmt::join(lengths, ","), fmt::join(options_.depths, ","), options_.samples, options_.seed);
}

RunReport Needle::report(const RunFolder& folder) const {
  RunReport report;
  const Summary& summary = report.summary = summary_of(folder);
  report.files = {{"summary.json", to_json_text(summary)}};
  report.head = [summary](bool markdown, bool) {
    return report_text(summary, markdown, /*with_plot=*/false, /*by_task=*/false);
  };
  report.sections = {{needle_report(summary, true), needle_report(summary, false)}};
  report.plots = {{"eval/needle/plot_needle.py", "plot", "Recall by depth and length"}};
  return report;
}

}  // namespace tandem::eval
