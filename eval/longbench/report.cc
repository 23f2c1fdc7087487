// LongBench's figures as upstream prints them, beside the report that all runs have.

#include <array>
#include <fmt/format.h>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "engine/common/json.h"
#include "eval/longbench/longbench.h"
#include "eval/report/table.h"

namespace tandem::eval {
namespace {

using Figure = std::optional<double>;

struct TaskFigures {
  Figure all;                     // of a task that is not LongBench-E's
  std::array<Figure, 3> buckets;  // of one that is
};

using Figures = std::map<std::pair<std::string, std::string>, TaskFigures>;  // by task and method

bool is_e(const std::string& task) {
  return longbench_dataset_of(task) != task;
}

Figures figures_of(const LongBench& dataset, const RunFolder& folder) {
  std::map<std::pair<std::string, std::string>, std::vector<double>> scores;
  std::map<std::pair<std::string, std::string>, std::vector<std::int64_t>> lengths;
  for (const SampleResult& sample : folder.samples()) {
    scores[{sample.task, sample.method}].push_back(sample.score);
    lengths[{sample.task, sample.method}].push_back(dataset.file(sample.task).records.at(sample.index).length);
  }
  Figures figures;
  for (const auto& [key, all] : scores) {
    TaskFigures& its = figures[key];
    if (is_e(key.first)) {
      its.buckets = longbench_e_scores(all, lengths[key]);
    } else {
      its.all = longbench_dataset_score(all);
    }
  }
  return figures;
}

/// "qa_f1" of upstream's qa_f1_score.
std::string metric_of(const LongBenchFile& file) {
  const std::string_view name = to_string(file.dataset->metric);
  return std::string(name.substr(0, name.rfind("_score")));
}

std::string text_of(const Figure& figure) {
  return figure ? fmt::format("{:.2f}", *figure) : "-";
}

/// One figure per method of a row; a mean of such rows.
struct Row {
  std::string name, range;
  std::uint64_t samples = 0;  // that a method has when the run is complete
  std::vector<Figure> figures;
};

std::vector<Row> rows_of(const LongBench& dataset, const std::string& task, const Figures& figures,
                         const Summary& summary) {
  const std::size_t ranges = is_e(task) ? kLongBenchBuckets.size() : 1;
  std::vector<Row> rows(ranges);
  for (std::size_t r = 0; r < ranges; ++r) {
    rows[r].name = task;
    if (is_e(task)) rows[r].range = kLongBenchBuckets[r];
    for (std::uint32_t i = 0; i < dataset.samples_of(task); ++i)
      rows[r].samples += !is_e(task) || longbench_bucket(dataset.file(task).records[i].length) == r ? 1 : 0;
    for (const MethodSummary& method : summary.methods) {
      const auto found = figures.find({task, method.label});
      const bool there = found != figures.end();
      rows[r].figures.push_back(!there ? std::nullopt : is_e(task) ? found->second.buckets[r] : found->second.all);
    }
  }
  return rows;
}

/// Over rows in which a method has a figure; nothing where one of them has none.
Row mean_of(const std::vector<Row>& rows) {
  Row mean{fmt::format("mean of {}", rows.size()), "", 0, {}};
  for (std::size_t m = 0; m < rows.front().figures.size(); ++m) {
    double sum = 0;
    bool all = true;
    for (const Row& row : rows) {
      all = all && row.figures[m];
      sum += row.figures[m].value_or(0);
    }
    mean.figures.push_back(all ? Figure(sum / static_cast<double>(rows.size())) : std::nullopt);
  }
  return mean;
}

}  // namespace

/// Per task and method, in percent with two digits as upstream's eval.py rounds them, and means over tasks. Tasks of
/// LongBench-E have a row for each range of lengths. A task without a finished sample of a method shows "-".
std::string LongBench::own_section(const RunFolder& folder, const Summary& summary, bool markdown) const {
  const Figures figures = figures_of(*this, folder);
  std::vector<Row> rows;
  bool ranges = false;
  for (const std::string& task : tasks()) {
    std::vector<Row> more = rows_of(*this, task, figures, summary);
    rows.insert(rows.end(), more.begin(), more.end());
    ranges = ranges || is_e(task);
  }
  if (rows.size() > 1) rows.push_back(mean_of(rows));
  Table table;
  table.head = {"task", "metric", "n"};
  if (ranges) table.head.insert(table.head.begin() + 1, "words");
  table.leading = table.head.size();
  for (const std::string& label : labels_of(summary, markdown)) table.head.push_back(label);
  for (const Row& row : rows) {
    std::vector<std::string>& cells = table.rows.emplace_back();
    cells.push_back(row.name);
    if (ranges) cells.push_back(row.range);
    const bool is_task = has(row.name);
    cells.push_back(is_task ? metric_of(file(row.name)) : "");
    cells.push_back(is_task ? std::to_string(row.samples) : "");
    for (const Figure& figure : row.figures) cells.push_back(text_of(figure));
  }
  std::string out = section("LongBench", markdown) + tandem::eval::text_of(table, markdown);
  out += note(
      "100 times the mean score, as upstream's eval.py rounds it; the last row is the mean of the rows above, and "
      "\"-\" "
      "where one of them has no sample. The "
      "accuracy further up is the same scores' mean over all samples, so that tasks count as many times as they have "
      "samples.",
      markdown);
  return out;
}

/// The same figures: {"methods": {<label>: {<task>: 41.23, <task of E>: {"0-4k": ...}}}}.
std::string LongBench::own_json(const RunFolder& folder, const Summary&) const {
  nlohmann::ordered_json json;
  json["protocol_id"] = folder.manifest().protocol_id;
  const Figures figures = figures_of(*this, folder);
  for (const MethodEntry& method : folder.manifest().methods) {
    nlohmann::ordered_json& of = json["methods"][method.label] = nlohmann::ordered_json::object();
    for (const std::string& task : tasks()) {
      const auto found = figures.find({task, method.label});
      if (found == figures.end()) continue;
      if (const Figure& figure = found->second.all; figure) of[task] = *figure;
      for (std::size_t b = 0; b < kLongBenchBuckets.size(); ++b)
        if (const Figure& figure = found->second.buckets[b]; figure)
          of[task][std::string(kLongBenchBuckets[b])] = *figure;
    }
  }
  return json_text(json, 2) + "\n";
}

}  // namespace tandem::eval
