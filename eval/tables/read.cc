#include <fmt/ranges.h>

#include "engine/common/error.h"
#include "engine/common/printable.h"
#include "engine/common/read_file.h"
#include "eval/perplexity/perplexity.h"
#include "eval/report/line_file.h"
#include "eval/report/manifest_difference.h"
#include "eval/report/run_folder.h"
#include "eval/tables/tables.h"

namespace tandem::eval {
namespace {

ReportedRun reported(const RunFolder& folder, const std::string& name, bool with_json) {
  ReportedRun run;
  run.name = name;
  run.perplexity = folder.manifest().benchmark == kPerplexity;
  const auto fill = [&](const auto& of_run, const Summary& summary) {
    static_cast<Summary&>(run) = summary;
    if (with_json) run.json = to_json_text(of_run);
  };
  if (run.perplexity) {
    const PerplexitySummary summary = summarise_perplexity(folder);
    fill(summary, summary.run);
  } else {
    const Summary summary = summarise(folder);
    fill(summary, summary);
  }
  for (MethodSummary& method : run.methods) method.latency = mean_of_lengths(method);
  return run;
}

}  // namespace

ReportedRun read_run(const std::filesystem::path& path, const std::string& name, bool with_json) {
  const RunFolder folder = RunFolder::open(path);
  ReportedRun run = reported(folder, name, with_json);
  if (run.complete) run.whole = printable_lines(read_if_there(path / kTextReport));
  const std::filesystem::path target = path / "target.json";
  if (!path_exists(target)) return run;
  try {
    run.target = parse_prediction(read_if_there(target), target.string());
  } catch (const InputError& error) {  // another version's, for example: the run's own figures are there all the same
    run.target_problem = error.what();
  }
  return run;
}

std::vector<std::string> unlike(std::span<const ReportedRun> runs) {
  std::vector<std::string> sentences;
  for (std::size_t i = 1; i < runs.size(); ++i) {
    const Manifest &first = runs[0].manifest, &other = runs[i].manifest;
    std::vector<std::string> differences;
    const auto differ = [&](const std::string& what, const std::string& there, const std::string& here) {
      if (there != here)
        differences.push_back(fmt::format("{} '{}' where '{}' has '{}'", what, here, runs[0].name, there));
    };
    differ("the benchmark", first.benchmark, other.benchmark);
    differ("the tasks", fmt::format("{}", fmt::join(first.tasks, ",")), fmt::format("{}", fmt::join(other.tasks, ",")));
    differ("the lengths", fmt::format("{}", fmt::join(first.lengths, ",")),
           fmt::format("{}", fmt::join(other.lengths, ",")));
    differ("samples", std::to_string(first.samples), std::to_string(other.samples));
    differ("the seed", std::to_string(first.seed), std::to_string(other.seed));
    for (const FieldDifference& d : protocol_differences(first.protocol_id, other.protocol_id))
      if (d.field != "budget" || !budget_differences(d).empty()) differ("the protocol's " + d.field, d.there, d.here);
    if (!differences.empty())
      sentences.push_back(fmt::format("{} has {}.", runs[i].name, fmt::join(differences, ", ")));
  }
  return sentences;
}

bool holds_sweep(const std::filesystem::path& folder) {
  std::error_code ignored;
  return std::filesystem::exists(folder / kSweepFile, ignored) &&
         !std::filesystem::exists(folder / "manifest.json", ignored);
}

ReportedSweep read_sweep(const std::filesystem::path& folder, const std::string& name) {
  const std::filesystem::path file = folder / kSweepFile;
  refuse_links(folder);
  const std::string text = read_if_there(file);
  if (text.empty()) throw_input_error("The file '{}' is empty or cannot be read.", file.string());
  return {name, parse_sweep(text, file.string()), text};
}

}  // namespace tandem::eval
