// What the evals share that ask the prompts of a benchmark: how they are answered with every method, and the report.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "cli/run.h"
#include "cli/session.h"
#include "eval/report/summary.h"
#include "eval/run/benchmark.h"

namespace tandem::cli {

/// Says on stderr which files in `folder`, the value of `option`, no task is read from, where there are some. `rule`:
/// what names must be. For runs without --tasks: with them the user has chosen.
void say_unread(const char* option, const std::filesystem::path& folder,
                const std::vector<std::filesystem::path>& files, const char* rule);

/// The samples of `benchmark` that the folder of `run` lacks are decoded with every method, and reported on. `what`:
/// "leval"; `doing`: the word of the progress line; `command`: as it can be typed again; `fill`: the benchmark's own
/// fields of the manifest.
struct EvalRun {
  const SessionOptions& options;
  const RunOptions& run;
  const char* what;
  const char* doing;
  std::string command;
  std::function<void(eval::Manifest&)> fill;
  std::function<void(eval::RunFolder&)> report;
};
void answer(const EvalRun& asked, const eval::Benchmark& benchmark, eval::BenchmarkOptions options, Session& session);

/// Writes summary.json, report.md with its plot and the benchmark's own figures as <what>.json, and prints the report.
/// `own`: what the benchmark adds to the report of all runs.
void write_report(const RunOptions& run, eval::RunFolder& folder, const std::string& what,
                  const std::function<std::string(const eval::Summary&)>& figures,
                  const std::function<std::string(const eval::Summary&, bool markdown)>& own);

}  // namespace tandem::cli
