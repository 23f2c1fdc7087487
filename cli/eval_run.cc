#include "cli/eval_run.h"

#include <algorithm>
#include <fmt/core.h>

#include "cli/progress.h"
#include "eval/report/line_file.h"
#include "eval/report/table.h"
#include "eval/run/decoded.h"

namespace tandem::cli {

std::vector<std::string> split_names(const std::string& list, const std::function<void(const std::string&)>& check) {
  std::vector<std::string> names;
  for (std::size_t at = 0; !list.empty() && at <= list.size();) {
    const std::size_t end = std::min(list.find(',', at), list.size());
    std::string name = list.substr(at, end - at);
    check(name);
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(std::move(name));
    at = end + 1;
  }
  return names;
}

void answer(const EvalRun& asked, const eval::Benchmark& benchmark, eval::BenchmarkOptions options, Session& session) {
  eval::Manifest manifest;
  manifest.command = asked.command;
  describe_session(asked.options, session, manifest);
  asked.fill(manifest);
  // What refuses an option comes before the folder, which it would leave behind.
  options.shard = shard_of(asked.run);
  options.prefix_files = prefix_files_of(asked.run, asked.options, session);
  eval::RunFolder folder = open_run(asked.run, asked.what, manifest);
  Progress progress(asked.doing, Progress::standard(asked.run.quiet));
  options.progress = [&](std::uint64_t done, std::uint64_t total) { progress.update(done, total); };
  fill_run(
      asked.run, folder, progress,
      [&] { eval::run_benchmark(benchmark, options, session.model, *session.device, *session.pool, folder); },
      [&] { asked.report(folder); });
}

void write_report(const RunOptions& run, const eval::RunFolder& folder, const std::string& what,
                  const std::function<std::string(const eval::Summary&)>& figures,
                  const std::function<std::string(const eval::Summary&, bool markdown)>& own) {
  eval::Summary summary = eval::summarise(folder);
  summary.remarks = eval::method_remarks(summary.manifest.methods, summary.manifest.weights_hash);
  eval::write_file(folder.path() / "summary.json", eval::to_json_text(summary));
  eval::write_file(folder.path() / (what + ".json"), figures(summary));
  const auto text = [&](bool markdown, bool with_plot) {
    return eval::report_text(summary, markdown, with_plot) + own(summary, markdown);
  };
  show_report(run, folder.path(), eval::kPlot, text,
              fmt::format("summary.json, {}.json, samples.jsonl, timings.jsonl", what));
}

}  // namespace tandem::cli
