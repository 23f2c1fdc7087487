#include "eval/perplexity/summary.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "engine/common/error.h"
#include "engine/common/json.h"

namespace tandem::eval {
namespace {

/// Without an interval where all windows are alike (or there is one): how far off another may be they do not say, and
/// no bound follows from what a loss can be.
Estimate estimate_of(const std::vector<double>& values, IntervalKind kind) {
  const bool alike = std::all_of(values.begin(), values.end(), [&](double x) { return x == values.front(); });
  if (alike) return {values.size(), mean(values), {}, IntervalKind::none};
  return {values.size(), mean(values), bootstrap_mean_interval(values), kind};
}

MethodLoss loss_of(const std::string& label, const std::map<std::uint32_t, const WindowLoss*>& own,
                   const std::map<std::uint32_t, const WindowLoss*>& baseline, bool is_baseline) {
  MethodLoss out;
  out.label = label;
  std::vector<double> more;
  out.nll_by_position.resize(own.begin()->second->nll_by_position.size());
  for (const auto& [index, window] : own) {
    out.nll.push_back(window->nll);
    if (const auto other = baseline.find(index); other != baseline.end() && !is_baseline)
      more.push_back(window->nll - other->second->nll);
    for (std::size_t b = 0; b < out.nll_by_position.size(); ++b)
      out.nll_by_position[b] += window->nll_by_position[b] / static_cast<double>(own.size());
  }
  out.loss = estimate_of(out.nll, IntervalKind::bootstrap);
  if (!more.empty()) out.difference = estimate_of(more, IntervalKind::paired_bootstrap);
  return out;
}

/// An estimate, its interval null where there is none.
nlohmann::ordered_json json_of(const Estimate& e) {
  nlohmann::ordered_json json = estimate_json(e, "value");
  if (e.kind == IntervalKind::none) json["interval"] = nullptr;
  return json;
}

}  // namespace

PerplexitySummary summarise_perplexity(const RunFolder& folder) {
  PerplexitySummary summary;
  Manifest& manifest = summary.run.manifest = folder.manifest();
  const std::vector<WindowLoss> windows = folder.windows();
  const std::vector<SampleTiming> timings = folder.timings();
  const std::string file = (folder.path() / "windows.jsonl").string();
  if (windows.empty()) throw_input_error("{} holds no finished window.", file);
  summary.scored = windows.front().scored;
  const std::size_t stretches = windows.front().nll_by_position.size();
  std::map<std::string, std::map<std::uint32_t, const WindowLoss*>> by_method;
  for (std::size_t i = 0; i < windows.size(); ++i) {
    if (windows[i].scored != summary.scored || windows[i].nll_by_position.size() != stretches)
      throw_input_error("{}:{}: the window scores {} tokens in {} stretches, but the first one {} in {}.", file, i + 1,
                        windows[i].scored, windows[i].nll_by_position.size(), summary.scored, stretches);
    by_method[windows[i].method][windows[i].index] = &windows[i];
  }
  Contexts contexts;
  for (const WindowLoss& window : windows) contexts[{window.task, window.length, window.index}] = window.length;
  const auto& baseline = by_method[manifest.methods.front().label];
  summary.run.complete = true;
  for (const MethodEntry& entry : manifest.methods) {
    const auto& own = by_method[entry.label];
    summary.run.complete = summary.run.complete && own.size() == manifest.samples &&
                           has_times(manifest, timings, entry.label, manifest.samples);
    if (own.empty()) continue;
    summary.methods.push_back(loss_of(entry.label, own, baseline, &own == &baseline));
    MethodSummary& method = summary.run.methods.emplace_back();
    method.label = entry.label;
    add_latency(manifest, timings, method);
    method.attends_everything_at = lengths_attended_whole(manifest, entry, timings, contexts);
  }
  return summary;
}

std::string to_json_text(const PerplexitySummary& summary) {
  const Manifest& m = summary.run.manifest;
  nlohmann::ordered_json json;
  json["schema_version"] = kSchemaVersion;
  write_origin(json, m);
  json["complete"] = summary.run.complete;
  json["text"] = m.tasks.front();
  json["context"] = m.lengths.front();
  json["scored"] = summary.scored;
  json["methods"] = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < summary.methods.size(); ++i) {
    const MethodLoss& loss = summary.methods[i];
    nlohmann::ordered_json method;
    method["method"] = loss.label;
    method["perplexity"] = std::exp(loss.loss.value);
    method["nll"] = json_of(loss.loss);
    if (loss.difference.n > 0) method["nll_difference"] = json_of(loss.difference);
    method["nll_by_position"] = loss.nll_by_position;
    write_latency(method, summary.run.methods[i]);
    json["methods"].push_back(std::move(method));
  }
  return json_text(json, 2) + "\n";
}

}  // namespace tandem::eval
