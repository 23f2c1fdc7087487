#include "cli/eval_run.h"

#include <fmt/core.h>

#include "cli/progress.h"
#include "cli/say.h"
#include "eval/report/table.h"
#include "eval/run/decoded.h"
#include "eval/run/unread_files.h"

namespace tandem::cli {

void say_unread(const char* option, const std::filesystem::path& folder,
                const std::vector<std::filesystem::path>& files, const char* rule) {
  const std::string note = eval::unread_note(option, folder, files, rule);
  if (!note.empty()) say(note);
}

void answer(const EvalRun& asked, const eval::Benchmark& benchmark, eval::BenchmarkOptions options, Session& session) {
  eval::Manifest manifest;
  manifest.command = asked.command;
  describe_session(asked.options, session, manifest);
  asked.fill(manifest);
  // What refuses an option comes before the folder, which it would leave behind.
  options.shard = shard_of(asked.run);
  options.prefix_files = prefix_files_of(asked.run, asked.options, session);
  eval::RunFolder folder = open_run(asked.run, asked.what, session, manifest);
  Progress progress(asked.doing, Progress::standard(asked.run.quiet));
  options.progress = [&](std::uint64_t done, std::uint64_t total) { progress.update(done, total); };
  fill_run(
      asked.run, folder, session, progress,
      [&] { eval::run_benchmark(benchmark, options, session.model, *session.device, *session.pool, folder); },
      [&] { asked.report(folder); });
}

void write_report(const RunOptions& run, eval::RunFolder& folder, const std::string& what,
                  const std::function<std::string(const eval::Summary&)>& figures,
                  const std::function<std::string(const eval::Summary&, bool markdown)>& own) {
  eval::Summary summary = eval::summarise(folder);
  summary.remarks = eval::method_remarks(summary.manifest.methods, summary.manifest.weights_hash);
  folder.write("summary.json", eval::to_json_text(summary));
  folder.write(what + ".json", figures(summary));
  const auto text = [&](bool markdown, bool with_plot) {
    return eval::report_text(summary, markdown, with_plot) + own(summary, markdown);
  };
  show_report(run, folder, eval::kPlot, text, fmt::format("summary.json, {}.json, samples.jsonl, timings.jsonl", what));
}

}  // namespace tandem::cli
