// tandem compare: methods side by side on RULER, accuracy and latency from the same run.
#include "eval/compare/compare.h"

#include <algorithm>
#include <cstdio>
#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/compare_target.h"
#include "cli/eval_run.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/parse.h"
#include "cli/progress.h"
#include "cli/ruler_files.h"
#include "cli/run.h"
#include "cli/say.h"
#include "cli/session.h"
#include "engine/common/error.h"
#include "engine/trace/perfetto.h"
#include "eval/compare/published_flops.h"
#include "eval/equal/equal.h"
#include "eval/equal/measure.h"
#include "eval/fluxion/head_errors.h"
#include "eval/gate/prediction.h"
#include "eval/report/run_files.h"
#include "eval/report/summary.h"
#include "eval/report/table.h"
#include "eval/ruler/ruler.h"
#include "eval/ruler/texts.h"
#include "eval/run/decoded.h"
#include "methods/registry.h"

namespace tandem::cli {
namespace {

constexpr const char* kTasks = "single,multikey";
constexpr const char* kLengths = "1K,2K";
constexpr const char* kEqualLength = "2K";  // with --equal, which takes one
constexpr std::uint64_t kSeed = 42;

constexpr const char* kCompareFooter = R"(
Examples:
  tandem compare                                       all methods, single and multikey tasks, embedded model
  tandem compare --methods full,hybrid-fixed:budget=0.05,hybrid-fixed:budget=0.2 --tasks single --lengths 1K,4K
  tandem compare --hw h200 --batch 4 --trace --out runs/h200
  tandem compare --ruler-data RULER/data --lengths 4K  samples as NVIDIA/RULER made them
  tandem compare --tasks niah,qa --ruler-essays PaulGrahamEssays.json --ruler-qa squad.json    natural texts
  tandem compare --as llama-3.1-8b --batch 8 --context 32K --hw fluxion-a100    adds a prediction at that shape
  tandem compare --methods full,fluxion:heads=oracle,line=cover,fluxion:heads=embedded --head-errors
                                                       a predictor's regret
  tandem compare --equal touched-bytes=0.1,0.25        every method's budget set so that a step touches equal bytes
  tandem compare --hw h200 --batch 4 --trace --resume --out runs/h200
                                                       goes on where ^C stopped it: the same options

The first method is the baseline that the others are compared with, on the same samples. Each prompt is prefilled once
and decoded with every method, the lossless ones (full-offload, full-host) too: their accuracy must be full's, their
times are not. Without --methods, methods whose published budget covers the embedded tasks' lengths get one of 512
tokens; `tandem methods <name>` has the published defaults, which --as predicts with where --context is above 2K. Fluxion
then has the embedded model's predictor, on another model none (docs/add_a_model.md), and with --as, since a predictor
serves one model, heads=published: properties drawn from a spread fitted to two times that the paper gives of
Llama-3.1-8B.

A budget means something else in every method (`tandem methods`). --equal sets all of them by what can be compared:
touched-bytes is what a decode step reads and writes of the context, indices and statistics included, wherever it lies;
device-bytes what is kept on the device. Shares are of what full comes to; several give a curve for each method. Methods
that no option of theirs can set take part as they are (docs/equal_bytes.md).

The run folder gets manifest.json, samples.jsonl (the same bytes in every run on the same instruction set),
timings.jsonl, summary.json, predicted.json (each method's step at a large shape, for tandem gate), report.md and
plot.png. docs/reading_results.md explains idle causes, columns and fields.)";

struct CompareCommand {
  SessionOptions session;
  std::string methods;         // empty: default_comparison()
  std::string ruler_data;      // official files; empty: the embedded source
  eval::RulerFiles texts;      // in place of embedded texts
  std::string tasks, lengths;  // empty: kTasks and kLengths, or all that the files hold
  std::string equal;           // empty: methods as they are given
  std::uint32_t samples = 20, batch = 1;
  std::optional<std::uint64_t> seed;  // none: kSeed; files have their samples
  RunOptions run;
  TargetArguments target;
  bool trace = false, head_errors = false;
};

std::string lengths_text(const std::vector<std::uint32_t>& lengths) {
  std::vector<std::string> texts;
  texts.reserve(lengths.size());
  for (const std::uint32_t length : lengths) texts.push_back(eval::length_text(length));
  return fmt::format("{}", fmt::join(texts, ","));
}

/// The command as it can be typed again, without where the results go.
std::string command_of(const CompareCommand& c, const std::vector<std::string>& methods,
                       const eval::CompareOptions& options, const std::optional<TargetPlan>& plan,
                       const std::optional<eval::EqualBytes>& equal) {
  const std::string target = !plan
                                 ? ""
                                 : fmt::format(" --as {} --context {} --workload {}", shell_word(c.target.as),
                                               eval::length_text(plan->options.context), shell_word(c.target.workload));
  std::string data = c.ruler_data.empty() ? "" : " --ruler-data " + shell_word(c.ruler_data);
  data += ruler_files_arguments(c.texts);
  const std::string seed = options.official ? "" : fmt::format(" --seed {}", options.seed);
  const std::string at_equal = equal ? " --equal " + eval::to_text(*equal) : "";
  return fmt::format(
      "tandem compare --model {} --methods {}{}{} --tasks {} --lengths {} --samples {}{} --batch {}{}{}{}",
      recorded_model(c.session.model), shell_word(fmt::format("{}", fmt::join(methods, ","))), at_equal, data,
      fmt::join(options.tasks, ","), lengths_text(options.lengths), options.samples, seed, c.batch,
      session_arguments(c.session), target, c.head_errors ? " --head-errors" : "");
}

/// Methods with their budgets set to equal bytes on the first sample of each task, or as the run that goes on has them.
eval::Equal equal_of(const CompareCommand& command, const eval::EqualBytes& asked, const eval::CompareOptions& options,
                     Session& session) {
  if (command.run.resume) {
    if (auto known = eval::read_equal(command.run.out, asked, options.methods)) return *known;
  }
  std::vector<eval::BenchmarkSample> samples;
  std::uint32_t most_tokens = 0;
  for (const std::string& task : options.tasks) {
    const eval::BenchmarkSample& sample =
        samples.emplace_back(eval::compare_sample(options, session.model, task, options.lengths.front(), 0));
    most_tokens = std::max(most_tokens, static_cast<std::uint32_t>(sample.prompt.size()) + sample.max_new_tokens);
  }
  Progress progress("setting budgets", Progress::standard(command.run.quiet));
  try {
    eval::BytesOfPrompts bytes(samples, options, session.model, *session.device, *session.pool);
    const std::uint64_t most = eval::most_questions(asked, options.methods, most_tokens);
    std::uint64_t done = 0;
    return eval::find_equal(asked, options.methods, most_tokens, [&](const std::string& spec) {
      progress.update(done++, most, spec);
      return eval::Bytes{bytes(spec, asked.measure)};
    });
  } catch (const Interrupted&) {
    throw RunError("Interrupted while budgets were set; nothing was run yet.");
  }
}

/// The trace of a method's first decode; of a run that goes on, the one that is there is that.
void write_trace(const eval::RunFolder& folder, std::size_t method, bool resumed, const Trace& trace) {
  const std::string name = eval::trace_file(method + 1, folder.manifest().methods[method].label);
  if (resumed && folder.output().has(name)) return;
  folder.output().write_by(name, [&](const std::filesystem::path& file) { write_perfetto(trace, file); });
}

/// Stores predicted steps at a shape where KV is most of the work, for `tandem gate`.
void write_prediction(eval::RunFolder& folder, bool quiet) {
  std::vector<eval::PredictedMethod> methods;
  for (const eval::MethodEntry& method : folder.manifest().methods) methods.push_back(eval::as_typed(method));
  Progress progress("predicting for gate", Progress::standard(quiet));
  folder.write(eval::kPredictionFile,
               eval::prediction_json(eval::predict_steps({}, methods, [] { return interrupted(); })));
  progress.finish();
}

/// Everything that follows from the samples: files, and text on stdout.
void report_on(const CompareCommand& command, const Session& session, const std::optional<TargetPlan>& target,
               const std::optional<eval::Equal>& equal, eval::RunFolder& folder) {
  eval::Summary summary = eval::summarise(folder);
  summary.remarks = eval::method_remarks(summary.manifest.methods, summary.manifest.weights_hash);
  folder.write("summary.json", eval::to_json_text(summary));
  const ModelConfig& config = session.model.config;
  std::string more = equal ? eval::equal_text(*equal, summary, /*markdown=*/true) : "";
  more += eval::published_flops_text(config, summary, /*markdown=*/true);
  folder.write("report.md", eval::report_text(summary, /*markdown=*/true) + more);
  const std::string flops = eval::published_flops_json(config, summary);
  if (!flops.empty()) folder.write("flops.json", flops);
  print("{}{}{}", eval::report_text(summary, /*markdown=*/false),
        equal ? eval::equal_text(*equal, summary, /*markdown=*/false) : "",
        eval::published_flops_text(config, summary, /*markdown=*/false));
  if (command.head_errors) {
    const auto errors = eval::read_head_errors(folder.path(), folder.manifest());
    folder.write("errors.json", eval::head_errors_json(errors, folder.manifest()));
    more += eval::head_errors_text(errors, summary, /*markdown=*/true);
    folder.write("report.md", eval::report_text(summary, /*markdown=*/true) + more);
    print("{}", eval::head_errors_text(errors, summary, /*markdown=*/false));
  }
  if (target) {
    const eval::Target predicted = run_target(*target, session, command.run.quiet);
    folder.write("target.json", eval::target_json(predicted));
    more += "\n" + eval::target_text(predicted, /*markdown=*/true);
    folder.write("report.md", eval::report_text(summary, /*markdown=*/true) + more);
    print("{}", eval::target_text(predicted, /*markdown=*/false));
  }
  if (command.run.shard.empty()) write_prediction(folder, command.run.quiet);
  check_stdout();
  const bool plotted = draw(eval::kPlot, folder.path(), "plot", !command.run.no_plot);
  const bool curves =
      draw("eval/equal/plot_equal.py", folder.path(), "equal", plotted && equal && !command.run.no_plot);
  if (curves) more += "\n![Accuracy at equal bytes](equal.png)\n";
  if (plotted) folder.write("report.md", eval::report_text(summary, /*markdown=*/true, plotted) + more);
  print("\n{}: report.md{}{}, summary.json, samples.jsonl, timings.jsonl\n", folder.path().string(),
        plotted ? ", plot.png" : "", curves ? ", equal.png" : "");
  check_stdout();
}

void compare(const CompareCommand& command) {
  eval::CompareOptions options;
  options.methods = command.methods.empty() ? default_comparison(is_embedded(command.session.model))
                                            : split_method_list(command.methods);
  const bool embedded = command.ruler_data.empty();
  if (!command.tasks.empty() || embedded)
    options.tasks = eval::expand_ruler_tasks(command.tasks.empty() ? kTasks : command.tasks);
  std::optional<eval::EqualBytes> equal_bytes;
  if (!command.equal.empty()) equal_bytes = eval::parse_equal_bytes(command.equal, "--equal");
  if (!command.lengths.empty() || embedded) {
    const char* all = equal_bytes ? kEqualLength : kLengths;
    options.lengths = parse_lengths(command.lengths.empty() ? all : command.lengths, "--lengths");
  }
  options.samples = command.samples;
  options.batch = command.batch;
  options.shard = shard_of(command.run);
  if (options.samples < 1 || options.samples > 100000)
    throw_input_error("--samples is {}: give 1 to 100000.", options.samples);
  if (options.batch < 1 || options.batch > 256) throw_input_error("--batch is {}: give 1 to 256.", options.batch);
  if (!embedded && !command.texts.empty())
    throw_input_error(
        "--ruler-data has whole prompts, so that --ruler-essays and --ruler-qa have no place in it: give one or the "
        "other.");
  if (!embedded && command.seed)
    throw_input_error("--seed makes the samples of the embedded source, and --ruler-data has its own: leave it away.");
  if (embedded) options.seed = command.seed.value_or(kSeed);
  options.texts = eval::read_ruler_texts(command.texts, options.tasks);
  if (!embedded) {
    options.official = std::make_shared<const eval::OfficialRuler>(command.ruler_data, options.tasks, options.lengths);
    options = eval::from_official(std::move(options));
  }
  if (equal_bytes && !command.target.as.empty())
    throw_input_error(
        "--equal sets budgets at the length of the samples, and --as predicts another one: give one of them.");
  if (equal_bytes && options.lengths.size() != 1)
    throw_input_error(
        "--equal sets budgets at one length, since what is equal at one is not at another, and --lengths has {}: give "
        "one, and `tandem report` puts runs side by side.",
        options.lengths.size());
  if (command.head_errors && std::none_of(options.methods.begin(), options.methods.end(), eval::has_head_errors))
    throw_input_error(
        "--head-errors measures fluxion's heads, and no method here is fluxion: leave it away or add one.");
  if (command.head_errors && !command.run.shard.empty())
    throw_input_error("--head-errors keeps more than shards are joined by: give it without --shard.");
  if (command.trace && !command.run.shard.empty())
    throw_input_error(
        "--trace keeps a method's first decode, which shards are not joined with: give it without --shard.");
  if (!command.target.as.empty() && !command.run.shard.empty())
    throw_input_error(
        "--as predicts when all samples are there: give it without --shard, and with --resume afterwards.");
  check_run_options(command.run);
  check_trained(command.session);

  std::optional<TargetPlan> target = plan_target(command.target, command.session, options);
  Session session = open_session(command.session, command.run.quiet);
  options.engine = session.engine;
  options.prefix_files = prefix_files_of(command.run, command.session, session);
  eval::check_compare(options, session.model);
  check_free_memory(session, options.batch, *std::max_element(options.lengths.begin(), options.lengths.end()));
  say_hints(options.methods, command.session);
  if (target) choose_prompts(*target, options, session.model);
  if (options.official) {
    for (const std::string& note : eval::official_notes(*options.official, command.samples, *session.model.tokenizer))
      say(note);
    if (command.tasks.empty()) {
      say_unread("--ruler-data", command.ruler_data, options.official->unread(),
                 "a file's place must be as 4096/vt.jsonl or 4096/vt/validation.jsonl, the length in digits and the "
                 "task one of RULER's");
    }
  }
  const std::vector<std::string> given = options.methods;
  std::optional<eval::Equal> equal;
  if (equal_bytes) {
    equal = equal_of(command, *equal_bytes, options, session);
    options.methods = equal->specs();
  }
  eval::Manifest manifest;
  manifest.command = command_of(command, given, options, target, equal_bytes);
  describe_session(command.session, session, manifest);
  eval::fill_manifest(options, manifest);
  eval::RunFolder folder = open_run(command.run, "compare", session, manifest);
  Progress progress("comparing", Progress::standard(command.run.quiet));
  options.progress = [&](std::uint64_t done, std::uint64_t total) { progress.update(done, total); };
  fill_run(
      command.run, folder, session, progress,
      [&] {
        if (equal) folder.write(eval::kEqualFile, eval::equal_json(*equal));
        std::optional<eval::HeadErrorLog> errors;
        if (command.head_errors) {
          errors.emplace(folder, options.batch);
          say_repairs(errors->repairs());
          options.make = [&](const std::string& spec) { return errors->make(spec); };
          options.decoded = [&](const eval::SampleKey& first) { errors->decoded(first); };
          options.lacks = [&](const eval::SampleKey& first) { return errors->lacks(first); };
        }
        eval::run_compare(options, session.model, *session.device, *session.pool, folder,
                          [&](std::size_t method, bool resumed, const Trace& trace) {
                            if (command.trace) write_trace(folder, method, resumed, trace);
                          });
        if (errors) errors->arrange();
      },
      [&] { report_on(command, session, target, equal, folder); });
}

}  // namespace

void add_compare(Command app) {
  Command command =
      app.subcommand("compare", "Compare methods: accuracy, latency, idle time and bytes of the same run");
  auto options = std::make_shared<CompareCommand>();
  command.option("--methods", options->methods,
                 fmt::format("Methods with their options; the first is the baseline [all: {}]",
                             fmt::join(default_comparison(true), ", ")));
  command.option(
      "--ruler-data", options->ruler_data,
      "Samples that NVIDIA/RULER made: a folder of <length>/<task>.jsonl, or one such file (default: the embedded "
      "source). No chat template is added; one that the files have is kept, its special tokens being read as such");
  add_ruler_files(command, options->texts);
  command.option("--tasks", options->tasks,
                 fmt::format("RULER tasks or groups: single, multikey, niah, qa, all [{}; of files: all]", kTasks));
  command.option(
      "--lengths", options->lengths,
      fmt::format("Context lengths in tokens: 4K,32768 [{}; with --equal: {}; of files: all]", kLengths, kEqualLength));
  command
      .option("--samples", options->samples, "Samples per task and length; of files, at most what the shortest holds")
      .show_default();
  command.option("--seed", options->seed, fmt::format("Seed of the samples [{}; files have theirs]", kSeed));
  command.option("--batch", options->batch, "Sequences decoded together").show_default();
  command.option("--equal", options->equal,
                 "Set every method's budget to equal bytes: touched-bytes=SHARES or device-bytes=SHARES of what full "
                 "comes to, such as touched-bytes=0.1,0.25; at one length");
  command.option("--as", options->target.as,
                 "Also predict latency at this shape (a preset of `tandem info`, or a model folder), with --batch");
  command
      .option("--context", options->target.context,
              "With --as: prompt tokens of each sequence, prefilled in chunks of 2048 or as --prefill-chunk says")
      .show_default();
  command
      .option("--workload", options->target.workload,
              "With --as: what heads choose, as recorded in this run, as published, or from a file")
      .show_default();
  add_run_options(command, options->run, "compare");
  command.flag("--head-errors", options->head_errors,
               "Also measure how far the outputs of fluxion's heads are off in every step (errors.jsonl); slow, and "
               "not part of the times");
  command.flag("--trace", options->trace,
               "Write each method's first decode for Perfetto (trace-<number>-<method>.json); of a run that goes on, "
               "the first one there, where none is there yet");
  add_session_options(command, options->session, Models::trained);
  command.footer(kCompareFooter);
  command.callback([options, command] {
    settle_shard(options->run);
    options->target.shaped = command.given("--context") || command.given("--workload");
    compare(*options);
  });
}

}  // namespace tandem::cli
