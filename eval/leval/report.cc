// L-Eval's figures as upstream prints them, beside the report that all runs have.

#include <array>
#include <cmath>
#include <fmt/core.h>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "engine/common/json.h"
#include "eval/leval/leval.h"
#include "eval/report/table.h"
#include "eval/scoring/rouge.h"
#include "eval/scoring/rounding.h"

namespace tandem::eval {
namespace {

/// Sums over a task's samples of a method.
struct LEvalSums {
  double score = 0, rouge1 = 0, rouge2 = 0, rouge_l = 0;
  std::uint64_t n = 0;
  std::array<double, 3> places = {};  // of topic_retrieval: the first, second and third topic's scores
  std::array<std::uint64_t, 3> asked = {};
};
using AllSums = std::map<std::pair<std::string, std::string>, LEvalSums>;  // by task and label

AllSums sums_of(const LEval& dataset, const RunFolder& folder) {
  AllSums sums;
  for (const SampleResult& sample : folder.samples()) {
    LEvalSums& of = sums[{sample.task, sample.method}];
    const LEvalQuestion& question = dataset.file(sample.task).questions.at(sample.index);
    ++of.n;
    of.score += sample.score;
    of.places[sample.index % 3] += sample.score;
    ++of.asked[sample.index % 3];
    if (question.kind != LEvalKind::rouge) continue;
    const Rouge scores = rouge(question.answer, sample.prediction);
    of.rouge1 += scores.rouge1;
    of.rouge2 += scores.rouge2;
    of.rouge_l += scores.rouge_l;
  }
  return sums;
}

bool has_rouge(const LEval& dataset, const std::string& task) {
  return dataset.file(task).questions.front().kind == LEvalKind::rouge;
}

/// Upstream's figures by its names, rounded to four digits; nothing where a sample is missing.
std::vector<std::pair<const char*, double>> figures_of(const LEval& dataset, const std::string& task,
                                                       const LEvalSums& sums) {
  if (sums.n < dataset.samples_of(task)) return {};
  const auto n = double(sums.n);
  const auto percent = [&](double sum) { return python_round(100 * sum / n, 4); };
  // Upstream takes every third question together, rounds the three means and prints the mean of these.
  if (dataset.file(task).questions.front().kind == LEvalKind::contains) {
    double sum = 0, places = 0;
    for (std::size_t i = 0; i < sums.places.size(); ++i) {
      if (sums.asked[i] == 0) continue;  // fewer than three questions, of which upstream prints nothing
      sum += python_round(100 * sums.places[i] / double(sums.asked[i]), 4);
      ++places;
    }
    return {{"exact_match", python_round(sum / places, 4)}};
  }
  if (!has_rouge(dataset, task))
    return {{dataset.file(task).dataset->closed ? "exact_match" : "f1", percent(sums.score)}};
  const double one = 100 * sums.rouge1 / n, two = 100 * sums.rouge2 / n, longest = 100 * sums.rouge_l / n;
  return {{"rouge1", percent(sums.rouge1)},
          {"rouge2", percent(sums.rouge2)},
          {"rougeL", percent(sums.rouge_l)},
          {"geometric_mean", python_round(std::cbrt(one * two * longest), 4)}};
}

std::string cut_note(const LEval& dataset, bool markdown) {
  const std::uint32_t shortened = dataset.cut_documents() + dataset.empty_documents();
  if (shortened == 0) return "";
  std::string text =
      fmt::format("{} of {} documents were cut to {} tokens", shortened, dataset.documents(), dataset.max_length());
  if (dataset.empty_documents() > 0) text += fmt::format("; of {} of them nothing is left", dataset.empty_documents());
  return note(text + ".", markdown);
}

}  // namespace

/// Per task and method in per cent: exact match, F1, or ROUGE-1, -2 and -L with the geometric mean of their means,
/// which upstream calls the score of a summary; of topic_retrieval the mean of the three places' rounded means. Four
/// digits behind the point, as upstream rounds them, in the JSON; two in the table. A task without all samples of a
/// method shows "-".
std::string LEval::own_section(const RunFolder& folder, const Summary& summary, bool markdown) const {
  const AllSums sums = sums_of(*this, folder);
  Table table;
  table.head = {"task", "metric", "n"};
  table.leading = 3;
  for (const std::string& label : labels_of(summary, markdown)) table.head.push_back(label);
  for (const std::string& task : tasks()) {
    const std::vector<const char*> metrics =
        has_rouge(*this, task) ? std::vector<const char*>{"rouge1", "rouge2", "rougeL", "geometric_mean"}
                               : std::vector<const char*>{file(task).dataset->closed ? "exact_match" : "f1"};
    for (std::size_t m = 0; m < metrics.size(); ++m) {
      std::vector<std::string>& row = table.rows.emplace_back();
      row = {m == 0 ? task : "", metrics[m], m == 0 ? std::to_string(samples_of(task)) : ""};
      for (const MethodSummary& method : summary.methods) {
        const auto found = sums.find({task, method.label});
        const auto figures = found == sums.end() ? std::vector<std::pair<const char*, double>>{}
                                                 : figures_of(*this, task, found->second);
        row.push_back(figures.empty() ? "-" : fmt::format("{:.2f}", figures[m].second));
      }
    }
  }
  std::string out = section("L-Eval", markdown) + text_of(table, markdown);
  out += note(
      "As upstream's auto_eval.py prints it, in per cent; geometric_mean is its score of a summary, of the three means "
      "above it. The accuracy further up is the mean over all questions, a summary's being its ROUGE-L. Judgements of "
      "a "
      "language model, which upstream reports beside these, are not made here.",
      markdown);
  out += cut_note(*this, markdown);
  return out;
}

/// {"protocol_id": ..., "methods": {<label>: {<task>: {"exact_match": ...} or {"f1": ...} or {"rouge1": ...}}}}.
std::string LEval::own_json(const RunFolder& folder, const Summary&) const {
  nlohmann::ordered_json json;
  json["protocol_id"] = folder.manifest().protocol_id;
  const AllSums sums = sums_of(*this, folder);
  for (const MethodEntry& method : folder.manifest().methods) {
    nlohmann::ordered_json& of = json["methods"][method.label] = nlohmann::ordered_json::object();
    for (const std::string& task : tasks()) {
      const auto found = sums.find({task, method.label});
      if (found == sums.end()) continue;
      for (const auto& [name, value] : figures_of(*this, task, found->second)) of[task][name] = value;
    }
  }
  return json_text(json, 2) + "\n";
}

}  // namespace tandem::eval
