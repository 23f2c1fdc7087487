// tandem compare: methods side by side on RULER, accuracy and latency from the same run.
#include "eval/compare/compare.h"

#include <algorithm>
#include <cstdio>
#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/compare_target.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/parse.h"
#include "cli/progress.h"
#include "cli/session.h"
#include "engine/common/error.h"
#include "engine/common/version.h"
#include "engine/kernels/isa.h"
#include "engine/trace/perfetto.h"
#include "eval/report/summary.h"
#include "eval/report/table.h"
#include "eval/ruler/ruler.h"
#include "methods/options.h"

namespace tandem::cli {
namespace {

constexpr const char* kTasks = "single,multikey";
constexpr const char* kLengths = "1K,2K";

constexpr const char* kFooter = R"(
Examples:
  tandem compare                                       all methods, all tasks, embedded model
  tandem compare --methods full,hybrid-fixed:budget=0.05,hybrid-fixed:budget=0.2 --tasks single --lengths 1K,4K
  tandem compare --hw h200 --batch 4 --trace --out runs/h200
  tandem compare --ruler-data RULER/data --lengths 4K  samples as NVIDIA/RULER made them
  tandem compare --as llama-3.1-8b --batch 8 --context 32K --hw fluxion-a100    adds a prediction at that shape
  tandem compare --resume --out runs/h200              goes on where ^C stopped it, with the same options

The first method is the baseline that the others are compared with, on the same samples. Each prompt is prefilled once
and decoded with every method. The run folder gets manifest.json, samples.jsonl (the same bytes in every run on the same
instruction set),
timings.jsonl, summary.json, report.md and plot.png.)";

struct CompareCommand {
  SessionOptions session;
  std::string methods = "full,streaming,hybrid-fixed,hgca";
  std::string ruler_data;      // official files; empty: the embedded source
  std::string tasks, lengths;  // empty: kTasks and kLengths, or all that the files hold
  std::uint32_t samples = 20, batch = 1;
  std::uint64_t seed = 42;
  std::string out;
  TargetArguments target;
  bool force = false, resume = false, quiet = false, trace = false, no_plot = false;
};

/// The command as it can be typed again, without where the results go.
std::string command_of(const CompareCommand& c, const eval::CompareOptions& options) {
  const std::string target = c.target.as.empty() ? ""
                                                 : fmt::format(" --as {} --context {} --workload {}", c.target.as,
                                                               c.target.context, c.target.workload);
  const std::string data = c.ruler_data.empty() ? "" : " --ruler-data " + c.ruler_data;
  const std::string lengths = !c.lengths.empty()     ? c.lengths
                              : c.ruler_data.empty() ? kLengths
                                                     : fmt::format("{}", fmt::join(options.lengths, ","));
  return fmt::format(
      "tandem compare --model {} --methods {}{} --tasks {} --lengths {} --samples {} --seed {} --batch {} --device "
      "{}{} "
      "--device-kv {} --host-kv {} --prefill-chunk {}{}",
      c.session.model, c.methods, data, fmt::join(options.tasks, ","), lengths, options.samples, c.seed, c.batch,
      c.session.device, c.session.device == "sim" ? " --hw " + c.session.hardware : "", c.session.device_kv,
      c.session.host_kv, c.session.prefill_chunk, target);
}

std::string default_folder() {
  std::string name = "runs/compare-" + eval::utc_now();
  std::replace(name.begin(), name.end(), ':', '-');
  return name;
}

eval::RunFolder open_folder(const CompareCommand& command, const std::string& path, const eval::Manifest& manifest) {
  if (!command.resume) return eval::RunFolder::create(path, manifest, command.force);
  eval::RunFolder folder = eval::RunFolder::resume(path);
  if (folder.manifest().command != manifest.command || folder.manifest().weights_hash != manifest.weights_hash ||
      folder.manifest().protocol_id != manifest.protocol_id || folder.manifest().isa != manifest.isa) {
    throw_input_error(
        "{} was made by another command, model or instruction set, so it cannot be resumed:\n  there: {} ({})\n  here: "
        " {} "
        "({})",
        path, folder.manifest().command, folder.manifest().isa, manifest.command, manifest.isa);
  }
  return folder;
}

void write_traces(const std::string& path, const std::string& method, const Trace& trace) {
  std::string name = method;
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '-' && c != '.') c = '_';
  }
  write_perfetto(trace, std::filesystem::path(path) / ("trace-" + name + ".json"));
}

void compare(const CompareCommand& command) {
  eval::CompareOptions options;
  options.methods = split_method_list(command.methods);
  const bool embedded = command.ruler_data.empty();
  if (!command.tasks.empty() || embedded)
    options.tasks = eval::expand_ruler_tasks(command.tasks.empty() ? kTasks : command.tasks);
  if (!command.lengths.empty() || embedded)
    options.lengths = parse_lengths(command.lengths.empty() ? kLengths : command.lengths, "--lengths");
  options.samples = command.samples;
  options.seed = command.seed;
  options.batch = command.batch;
  if (options.samples < 1 || options.samples > 100000)
    throw_input_error("--samples is {}: give 1 to 100000.", options.samples);
  if (options.batch < 1 || options.batch > 256) throw_input_error("--batch is {}: give 1 to 256.", options.batch);
  if (!embedded) {
    options.official = std::make_shared<const eval::OfficialRuler>(command.ruler_data);
    options = eval::from_official(std::move(options));
  }
  if (command.force && command.resume)
    throw_input_error("--force replaces a run and --resume continues it: give one of them.");
  if (command.resume && command.out.empty())
    throw_input_error("--resume needs --out, the folder of the run to continue.");

  const std::optional<TargetPlan> target = plan_target(command.target, command.session, options);
  Session session = open_session(command.session);
  options.engine = session.engine;
  eval::check_compare(options, session.model);
  eval::Manifest manifest;
  manifest.command = command_of(command, options);
  manifest.tandem_version = std::string(version());
  manifest.git_commit = std::string(git_commit());
  eval::fill_manifest(options, session.model, *session.device, manifest);
  if (command.session.device == "sim") manifest.hardware_profile = command.session.hardware;
  manifest.machine = eval::this_machine();
  manifest.isa = to_string(active_isa());
  manifest.threads = session.pool->size();
  manifest.started_utc = eval::utc_now();
  const std::string path = command.out.empty() ? default_folder() : command.out;
  eval::RunFolder folder = open_folder(command, path, manifest);

  Progress progress("comparing", Progress::standard(command.quiet));
  options.progress = [&](std::uint64_t done, std::uint64_t total) { progress.update(done, total); };
  try {
    eval::run_compare(options, session.model, *session.device, *session.pool, folder,
                      [&](const std::string& method, const Trace& trace) {
                        if (command.trace) write_traces(path, method, trace);
                      });
  } catch (const Interrupted&) {
    progress.finish();
    folder.keep();
    throw RunError(
        fmt::format("Interrupted; finished samples are kept. Go on with the same options and --resume --out {}", path));
  } catch (const RunError&) {  // a full disk, for example: what is finished is worth more than the run it replaces
    progress.finish();
    if (command.resume || !folder.samples().empty()) {
      folder.keep();
    } else {
      folder.discard();
    }
    throw;
  } catch (...) {
    progress.finish();
    if (!command.resume) folder.discard();
    throw;
  }
  progress.finish();
  folder.keep();
  manifest = folder.manifest();
  manifest.finished_utc = eval::utc_now();
  folder.write_manifest(manifest);

  const eval::Summary summary = eval::summarise(folder);
  eval::write_file(folder.path() / "summary.json", eval::to_json_text(summary));
  std::string at_target;
  eval::write_file(folder.path() / "report.md", eval::report_text(summary, /*markdown=*/true));
  fmt::print("{}", eval::report_text(summary, /*markdown=*/false));
  if (target) {
    const eval::Target predicted = run_target(*target, options, session, command.quiet);
    eval::write_file(folder.path() / "target.json", eval::target_json(predicted));
    at_target = "\n" + eval::target_text(predicted, /*markdown=*/true);
    eval::write_file(folder.path() / "report.md", eval::report_text(summary, /*markdown=*/true) + at_target);
    fmt::print("{}", eval::target_text(predicted, /*markdown=*/false));
  }
  check_stdout();
  const std::string no_plot = command.no_plot ? "" : eval::make_plot(folder.path());
  const bool plotted = !command.no_plot && no_plot.empty();
  if (plotted)
    eval::write_file(folder.path() / "report.md", eval::report_text(summary, /*markdown=*/true, plotted) + at_target);
  if (!no_plot.empty()) fmt::print(stderr, "{}\n", no_plot);
  fmt::print("\n{}: report.md{}, summary.json, samples.jsonl, timings.jsonl\n", path, plotted ? ", plot.png" : "");
  check_stdout();
}

}  // namespace

void add_compare(CLI::App& app) {
  auto* command =
      app.add_subcommand("compare", "Compare methods: accuracy, latency, idle time and bytes of the same run");
  auto options = std::make_shared<CompareCommand>();
  command->add_option("--methods", options->methods, "Methods with their options; the first is the baseline")
      ->capture_default_str();
  command->add_option(
      "--ruler-data", options->ruler_data,
      "Samples that NVIDIA/RULER made: a folder of <length>/<task>.jsonl, or one such file (default: the "
      "embedded source)");
  command->add_option(
      "--tasks", options->tasks,
      fmt::format("RULER tasks or groups: single, multikey, niah, qa, all [{}; of files: all]", kTasks));
  command->add_option("--lengths", options->lengths,
                      fmt::format("Context lengths in tokens: 4K,32768 [{}; of files: all]", kLengths));
  command->add_option("--samples", options->samples, "Samples per task and length")->capture_default_str();
  command->add_option("--seed", options->seed, "Seed of the samples")->capture_default_str();
  command->add_option("--batch", options->batch, "Sequences decoded together")->capture_default_str();
  command->add_option(
      "--as", options->target.as,
      "Also predict latency at this shape (a preset of `tandem info`, or a model folder), with --batch");
  command->add_option("--context", options->target.context, "With --as: prompt tokens of each sequence")
      ->capture_default_str();
  command
      ->add_option("--workload", options->target.workload,
                   "With --as: what heads choose, as recorded in this run, as published, or from a file")
      ->capture_default_str();
  command->add_option("--out", options->out, "Run folder (default: runs/compare-<time>)");
  command->add_flag("--force", options->force, "Replace an earlier run in that folder");
  command->add_flag("--resume", options->resume, "Continue an interrupted run in that folder");
  command->add_flag("--trace", options->trace, "Write each method's first decode for Perfetto (trace-<method>.json)");
  command->add_flag("--no-plot", options->no_plot, "Draw no plot");
  command->add_flag("--quiet", options->quiet, "No progress line");
  add_session_options(*command, options->session);
  command->footer(kFooter);
  command->callback([options] { compare(*options); });
}

}  // namespace tandem::cli
