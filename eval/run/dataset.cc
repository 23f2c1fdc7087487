#include "eval/run/dataset.h"

#include <fmt/core.h>

#include "eval/report/table.h"
#include "eval/run/decoded.h"

namespace tandem::eval {

void Dataset::fill_manifest(const std::vector<std::string>& methods, Manifest& manifest) const {
  manifest.methods = method_entries(methods);
  manifest.benchmark = name();
  manifest.tasks = tasks();
  manifest.lengths = lengths();
  manifest.seed = seed();
  std::vector<std::uint32_t> samples;
  samples.reserve(manifest.tasks.size());
  for (const std::string& task : manifest.tasks) samples.push_back(samples_of(task));
  manifest.set_samples(std::move(samples));
  manifest.protocol_id = protocol_id(manifest);
}

std::vector<Score> Dataset::scores(std::span<const DatasetSample> samples,
                                   std::span<const std::string> predictions) const {
  std::vector<Score> scores;
  scores.reserve(samples.size());
  for (std::size_t i = 0; i < samples.size(); ++i) scores.push_back(score(samples[i], predictions[i]));
  return scores;
}

RunReport Dataset::report(const RunFolder& folder) const {
  RunReport report;
  const Summary& summary = report.summary = summary_of(folder);
  report.files = {{"summary.json", to_json_text(summary)}};
  if (std::string own = own_json(folder, summary); !own.empty())
    report.files.emplace_back(name() + ".json", std::move(own));
  report.head = [summary](bool markdown, bool with_plot) { return report_text(summary, markdown, with_plot); };
  report.sections = {{own_section(folder, summary, true), own_section(folder, summary, false)}};
  report.plots = {{kPlot, "plot"}};
  return report;
}

std::string RunReport::text(bool markdown, std::size_t drawn) const {
  std::string text = head(markdown, drawn > 0);
  for (const ReportSection& section : sections) text += markdown ? section.markdown : section.terminal;
  for (std::size_t i = 0; i < drawn; ++i)
    if (!plots[i].caption.empty()) text += fmt::format("\n![{}]({}.png)\n", plots[i].caption, plots[i].name);
  if (markdown) text += provenance(summary.manifest);
  return text;
}

std::string protocol_end(const Manifest& manifest) {
  return fmt::format("+budget:{}+query:aware+question:in-prefill+eos:stops", budget_meanings(manifest.methods));
}

Summary summary_of(const RunFolder& folder) {
  Summary summary = summarise(folder);
  summary.remarks = method_remarks(summary.manifest.methods, summary.manifest.weights_hash);
  return summary;
}

}  // namespace tandem::eval
