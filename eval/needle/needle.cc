#include "eval/needle/needle.h"

#include <algorithm>
#include <charconv>
#include <fmt/ranges.h>

#include "engine/common/error.h"
#include "eval/report/table.h"
#include "eval/ruler/protocol.h"
#include "eval/run/option_values.h"

namespace tandem::eval {
namespace {

constexpr std::string_view kDepthPrefix = "depth_";

RulerOptions ruler_options(const NeedleOptions& asked) {
  find_one_needle_task(asked.task);
  RulerOptions options = asked;
  options.needle = asked.task;
  for (const std::uint32_t depth : asked.depths) {
    if (depth > 100) throw_input_error("--depths: {} is more than 100 %.", depth);
    options.tasks.push_back(depth_task(depth));
    if (!options.percents.emplace(options.tasks.back(), depth).second)
      throw_input_error("--depths: {} is given twice.", depth);
  }
  if (asked.texts.essays != nullptr) check_hidden_in_prose(asked.task);
  return options;
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

Needle::Needle(const NeedleOptions& options, const Model& model)
    : Ruler(ruler_options(options), model), depths_(options.depths) {}

std::string Needle::protocol_id(const Manifest& manifest) const {
  std::string id = fmt::format("needle/v2+task:{}", options_.needle);
  for (const auto& [field, value] : ruler_protocol_fields(Ruler::protocol_id(manifest)))
    id += fmt::format("+{}:{}", field == "variant" ? "source" : field, value);
  return id;
}

std::string Needle::arguments() const {
  const std::string& file = options_.text_files.essays;
  return fmt::format(" --task {}{} --lengths {} --depths {} --samples {} --seed {}", options_.needle,
                     file.empty() ? "" : " --ruler-essays " + shell_word(file), lengths_text(), fmt::join(depths_, ","),
                     options_.samples, options_.seed);
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
