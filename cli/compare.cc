// tandem compare, which is tandem eval ruler: methods side by side on RULER, accuracy and latency from the same run.
#include <algorithm>
#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/eval.h"
#include "cli/machines.h"
#include "engine/common/interrupt.h"
#include "engine/trace/perfetto.h"
#include "eval/compare/ruler_dataset.h"
#include "eval/fluxion/head_errors.h"
#include "eval/gate/gate.h"
#include "eval/match_bytes/match_bytes.h"
#include "eval/predict/record.h"
#include "eval/report/run_folder.h"
#include "eval/run/option_values.h"
#include "methods/registry.h"

namespace tandem::cli {
namespace {

constexpr const char* kCompareFooter = R"(
Examples:
  tandem compare                                       all methods, single and multikey tasks, embedded model; two minutes
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
times are not. Published budgets are larger than the short prompts of the embedded tasks: without --methods such methods
get 512 tokens instead. `tandem methods <name>` has the published defaults, which --as predicts with where --context is
above 2K. A predictor of Fluxion serves one model: without --methods the embedded model has its own, another one has none
(docs/train_a_predictor.md), and --as takes heads=published, properties drawn from a spread fitted to two times in the paper.

A budget means something else in every method (`tandem methods`). --equal sets all of them by what can be compared:
touched-bytes is what a decode step reads and writes of the context, indices and statistics included, wherever it lies;
device-bytes what is kept on the device. Shares are of what full comes to; several give a curve for each method. Methods
that no option of theirs can set take part as they are (docs/equal_bytes.md).

The terminal ends with the answer; `tandem report FOLDER` prints all tables, which report.md has with the figure plot.png.
Other files of the folder are for programs:
samples.jsonl (the same bytes in every run on the same instruction set), timings.jsonl, summary.json, manifest.json,
predicted.json (each method's step at a large shape, for `tandem gate`), flops.json where a paper counts FLOPs, and
target.json with --as, which `tandem simulate --workload` takes. docs/reading_results.md explains columns and fields.)";

eval::DatasetEntry ruler_entry() {
  return {.name = "ruler",
          .summary = "RULER's tasks, as `compare` asks them",
          .doing = "comparing",
          .methods = "",
          .data_help = nullptr,
          .data_option = "--ruler-data",
          .lengths = "--lengths",
          .file_rule =
              "a file's place must be as 4096/vt.jsonl or 4096/vt/validation.jsonl, the length in digits and "
              "the task one of RULER's",
          .footer = kCompareFooter,
          .make = [] { return std::unique_ptr<eval::DatasetCommand>(std::make_unique<eval::RulerCommand>()); }};
}

struct CompareCommand : EvalCommand {
  CompareCommand() : EvalCommand(ruler_entry()) {}

  eval::RulerCommand& ruler() const { return static_cast<eval::RulerCommand&>(*dataset); }

  std::string equal;                                       // empty: methods as they are given
  std::string as, context = "32K", workload = "recorded";  // nothing is predicted without `as`
  bool shaped = false;                                     // --context or --workload is given
  bool trace = false, head_errors = false;
};

/// The part of the run that predicts at another shape.
struct PredictionPlan {
  Model shape;
  HardwareProfile hardware;
  std::optional<Workload> workload;  // none: recorded in this run
  eval::PredictionOptions options;
  std::vector<eval::HeadPrompt> prompts;  // that a recorded one is recorded on
};

/// Reads and checks everything that can be known before the run, so that a typo costs nothing.
std::optional<PredictionPlan> plan_prediction(const CompareCommand& c, const std::vector<std::string>& methods) {
  if (c.as.empty()) {
    if (c.shaped)
      throw_input_error("--context and --workload belong to --as, the shape that is predicted: give it too.");
    return std::nullopt;
  }
  if (c.session.device != "sim")
    throw_input_error("--as predicts with a hardware profile: it needs --device sim, not {}.", c.session.device);
  PredictionPlan plan{load_shape(c.as), load_profile(c.session.hardware), std::nullopt, {}, {}};
  plan.options.context = eval::parse_one_length(c.context, "--context");
  // Those that are compared by default have budgets for the embedded tasks' short prompts, and a predictor of head
  // properties that was trained for the embedded model alone or none.
  const bool by_default = methods == default_comparison(true) || methods == default_comparison(false);
  plan.options.methods = by_default ? default_prediction(plan.options.context) : methods;
  plan.options.compared = methods;
  if (c.session.prefill_chunk) plan.options.prefill_chunk = chunk_of(c.session);
  plan.options.batch = c.batch;
  plan.options.steps = 64;  // windows slide and blocks fill up meanwhile
  plan.options.threads = c.session.threads;
  plan.options.ranges = true;
  plan.options.interrupted = interrupted;
  eval::check_target(plan.shape, plan.hardware, plan.options);
  if (c.workload != "recorded") plan.workload = read_workload(c.workload, "recorded, ");
  return plan;
}

/// Takes the first sample of every task at the longest length where a workload is to be recorded. InputError where one
/// is too short for that.
void choose_prompts(PredictionPlan& plan, const eval::Dataset& dataset, const Model& model) {
  if (plan.workload) return;
  const std::vector<std::uint32_t> lengths = dataset.lengths();
  const std::uint32_t length = *std::max_element(lengths.begin(), lengths.end());
  for (const std::string& task : dataset.tasks()) {
    eval::HeadPrompt& prompt = plan.prompts.emplace_back();
    eval::DatasetSample sample = dataset.sample(task, length, 0);
    prompt.tokens = std::move(sample.prompt);
    prompt.name = task;
    prompt.first_query = static_cast<std::uint32_t>(prompt.tokens.size() - 1);
    const auto answer = model.tokenizer->encode(" " + sample.answers.front(), /*add_bos=*/false);
    prompt.tokens.insert(prompt.tokens.end(), answer.begin(), answer.end());
    if (prompt.tokens.size() < eval::kRecordedTokens) {
      throw_input_error(
          "--as records how the heads of this run attend, for which a sample of {} at length {} is too short: with its "
          "answer it has {} tokens of the {} that are needed. Give longer --lengths, or --workload published.",
          task, length, prompt.tokens.size(), eval::kRecordedTokens);
    }
  }
}

/// Methods with their budgets set to equal bytes on the first sample of each task, or as the run that goes on has them.
eval::Equal equal_of(const CompareCommand& command, const eval::EqualBytes& asked, PreparedEval& prepared) {
  auto& [held, dataset, options] = prepared;
  Session& session = *held;
  if (command.run.resume) {
    if (auto known = eval::read_equal(command.run.out, asked, options.methods)) return *known;
  }
  std::vector<eval::DatasetSample> samples;
  std::uint32_t most_tokens = 0;
  for (const std::string& task : dataset->tasks()) {
    const eval::DatasetSample& sample = samples.emplace_back(dataset->sample(task, dataset->lengths().front(), 0));
    most_tokens = std::max(most_tokens, static_cast<std::uint32_t>(sample.prompt.size()) + sample.max_new_tokens);
  }
  const auto find = [&](const auto& progress) {
    eval::BytesOfPrompts bytes(samples, options, session.model, *session.device, *session.pool);
    const std::uint64_t most = eval::most_questions(asked, options.methods, most_tokens);
    std::uint64_t done = 0;
    return eval::find_equal(asked, options.methods, most_tokens, [&](const std::string& spec) {
      progress(done++, most, spec);
      return eval::Bytes{bytes(spec, asked.measure)};
    });
  };
  return with_progress("setting budgets", command.run.quiet, find,
                       "Interrupted while budgets were set; nothing was run yet.");
}

/// The trace of a method's first decode; of a run that goes on, the one that is there is that.
void write_trace(const eval::RunFolder& folder, std::size_t method, bool resumed, const Trace& trace) {
  const std::string name = eval::trace_file(method + 1, folder.manifest().methods[method].label);
  if (resumed && folder.output().has(name)) return;
  folder.output().write_by(name, [&](const std::filesystem::path& file) { write_perfetto(trace, file); });
}

/// Predicted steps at a shape where KV is most of the work, for `tandem gate`.
std::string prediction_of(const eval::RunFolder& folder) {
  std::vector<eval::PredictedMethod> methods;
  for (const eval::MethodEntry& method : folder.manifest().methods) methods.push_back(eval::as_typed(method));
  return eval::gate_prediction_json(eval::predict_steps({}, methods, interrupted));
}

void add_equal(const eval::Equal& equal, eval::RunReport& report) {
  const eval::Summary& summary = report.summary;
  report.sections.insert(report.sections.begin(),
                         {eval::equal_text(equal, summary, true), eval::equal_text(equal, summary, false)});
  report.plots.push_back({"eval/match_bytes/plot_equal.py", "equal", "Accuracy at equal bytes"});
}

void add_head_errors(const eval::RunFolder& folder, eval::RunReport& report) {
  const eval::Summary& summary = report.summary;
  const auto errors = eval::read_head_errors(folder.path(), folder.manifest());
  report.files.emplace_back("errors.json", eval::head_errors_json(errors, folder.manifest()));
  report.sections.push_back(
      {eval::head_errors_text(errors, summary, true), eval::head_errors_text(errors, summary, false)});
}

void add_target(const PredictionPlan& plan, const Session& session, bool quiet, eval::RunReport& report) {
  std::optional<Workload> workload = plan.workload;
  if (!workload) {
    EngineOptions one = session.engine;
    one.max_batch = 1;
    Engine engine(session.model, *session.device, *session.pool, one);
    workload = eval::record_workload(session.model, engine, *session.pool, plan.prompts);
  }
  Progress progress("predicting", quiet);
  eval::PredictionOptions options = plan.options;
  options.progress = progress.hook();
  const eval::Prediction predicted = eval::predict(plan.shape, plan.hardware, *workload, options);
  progress.finish();
  report.files.emplace_back("target.json", eval::prediction_json(predicted));
  report.sections.push_back({"\n" + eval::prediction_text(predicted, true), eval::prediction_text(predicted, false)});
}

void check_extras(const CompareCommand& c, const std::vector<std::string>& methods) {
  if (!c.equal.empty() && !c.as.empty())
    throw_input_error(
        "--equal sets budgets at the length of the samples, and --as predicts another one: give one of them.");
  if (c.head_errors && std::none_of(methods.begin(), methods.end(), eval::has_head_errors))
    throw_input_error(
        "--head-errors measures fluxion's heads, and no method here is fluxion: leave it away or add one.");
  if (c.run.shard.empty()) return;
  if (c.head_errors) throw_input_error("--head-errors keeps more than shards are joined by: give it without --shard.");
  if (c.trace)
    throw_input_error(
        "--trace keeps a method's first decode, which shards are not joined with: give it without --shard.");
  if (!c.as.empty())
    throw_input_error(
        "--as predicts when all samples are there: give it without --shard, and with --resume afterwards.");
}

/// The options of the recorded command that follow a dataset's own.
std::string extra_arguments(const CompareCommand& c, const std::optional<PredictionPlan>& plan) {
  const std::string target = !plan
                                 ? ""
                                 : fmt::format(" --as {} --context {} --workload {}", eval::shell_word(c.as),
                                               eval::length_text(plan->options.context), eval::shell_word(c.workload));
  return target + (c.head_errors ? " --head-errors" : "");
}

void compare(CompareCommand& c, const Command& command) {
  const std::vector<std::string> methods =
      c.methods.empty() ? default_comparison(is_embedded(c.session.model)) : split_method_list(c.methods);
  std::optional<eval::EqualBytes> equal_bytes;
  if (!c.equal.empty()) equal_bytes = eval::parse_equal_bytes(c.equal, "--equal");
  c.ruler().one_length = equal_bytes.has_value();
  check_extras(c, methods);
  std::optional<PredictionPlan> target = plan_prediction(c, methods);
  PreparedEval prepared = prepare_eval(c, command, methods);
  if (equal_bytes && prepared.dataset->lengths().size() != 1)
    throw_input_error("--equal sets budgets at one length, and --ruler-data has {}: choose one with --lengths.",
                      prepared.dataset->lengths().size());
  if (target) choose_prompts(*target, *prepared.dataset, prepared.session->model);
  std::optional<eval::Equal> equal;
  if (equal_bytes) {
    equal = equal_of(c, *equal_bytes, prepared);
    prepared.options.methods = equal->specs();
  }
  EvalHooks hooks;
  hooks.around = [&](eval::RunFolder& folder, eval::DatasetRunOptions& options, const std::function<void()>& decode) {
    if (equal) folder.write(eval::kEqualFile, eval::equal_json(*equal));
    if (c.trace) {
      options.trace_of_first = [&](std::size_t method, bool resumed, const Trace& trace) {
        write_trace(folder, method, resumed, trace);
      };
    }
    if (!c.head_errors) return decode();
    eval::HeadErrorLog errors(folder, options.batch);
    say_repairs(errors.repairs());
    options.make = [&](const std::string& spec) { return errors.make(spec); };
    options.decoded = [&](const eval::SampleKey& first) { errors.decoded(first); };
    options.lacks = [&](const eval::SampleKey& first) { return errors.lacks(first); };
    decode();
    errors.arrange();
  };
  if (equal)
    hooks.add.emplace_back([&](const eval::RunFolder&, eval::RunReport& report) { add_equal(*equal, report); });
  if (c.head_errors) hooks.add_later.emplace_back(add_head_errors);
  if (target) {
    hooks.add_later.emplace_back([&](const eval::RunFolder&, eval::RunReport& report) {
      add_target(*target, *prepared.session, c.run.quiet, report);
    });
  }
  if (c.run.shard.empty()) {
    hooks.add_later.emplace_back([&](const eval::RunFolder& folder, eval::RunReport& report) {
      report.files.emplace_back(eval::kPredictionFile, prediction_of(folder));
    });
  }
  const std::string at_equal = equal_bytes ? " --equal " + eval::to_text(*equal_bytes) : "";
  answer(c, prepared, "compare",
         recorded_command(c, "compare", methods, *prepared.dataset, at_equal) + extra_arguments(c, target), hooks);
}

void add_to(Command command) {
  auto c = std::make_shared<CompareCommand>();
  command.option("--methods", c->methods,
                 fmt::format("{} [all: {}]", kMethodsHelp, fmt::join(default_comparison(true), ", ")));
  add_eval_options(command, *c);
  command.option("--equal", c->equal,
                 "Set every method's budget to equal bytes: touched-bytes=SHARES or device-bytes=SHARES of what full "
                 "comes to, such as touched-bytes=0.1,0.25; at one length");
  command.option("--as", c->as,
                 "Also predict latency at this shape (a preset of `tandem info`, or a model folder), with --batch");
  command.option("--context", c->context,
                 "With --as: prompt tokens of each sequence, prefilled in chunks of 2048 or as --prefill-chunk says");
  command.option("--workload", c->workload,
                 "With --as: what heads choose, as recorded in this run, as published, or from a file");
  add_run_options(command, c->run, "compare");
  command.flag("--head-errors", c->head_errors,
               "Also measure how far the outputs of fluxion's heads are off in every step (errors.jsonl); slow, and "
               "not part of the times");
  command.flag("--trace", c->trace,
               "Write each method's first decode for Perfetto (trace-<number>-<method>.json). A resumed run keeps a "
               "trace that is there");
  add_session_options(command, c->session, Models::trained);
  command.callback([c, command] {
    settle_shard(c->run);
    c->shaped = command.given("--context") || command.given("--workload");
    compare(*c, command);
  });
}

}  // namespace

void add_compare(Command app) {
  add_to(app.subcommand("compare", "Compare methods: accuracy, latency, idle time and bytes of the same run",
                        kCompareFooter));
}

void add_ruler(Command eval) {
  const eval::DatasetEntry entry = ruler_entry();
  add_to(eval.subcommand(entry.name, entry.summary, entry.footer));
}

}  // namespace tandem::cli
