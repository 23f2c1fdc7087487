// tandem eval perplexity.
#include <filesystem>
#include <fmt/ranges.h>

#include "cli/commands.h"
#include "cli/input.h"
#include "cli/parse.h"
#include "cli/progress.h"
#include "cli/run.h"
#include "cli/session.h"
#include "engine/common/error.h"
#include "engine/model/utf8.h"
#include "eval/perplexity/perplexity.h"
#include "eval/perplexity/summary.h"
#include "eval/report/table.h"
#include "eval/run/decoded.h"
#include "methods/options.h"

namespace tandem::cli {
namespace {

constexpr const char* kEvalFooter = R"(
Examples:
  tandem eval perplexity --text book.txt                  how much a method loses when every token goes through it
  tandem eval longbench --data LongBench --model ~/llama --chat    questions, summaries and code, as published
  tandem eval leval --data LEval-data --model ~/llama --chat       exams, questions and summaries, as published
  tandem eval reasoning --data reasoning --model ~/qwen3 --chat    Pass@1 on AIME, MATH-500, GPQA beside FLOPs
  tandem eval needle --lengths 1K,2K,4K                   where in a context methods still find a needle)";

constexpr const char* kPerplexityFooter = R"(
Examples:
  tandem eval perplexity --methods full,streaming,hgca:beta=0.5
  tandem eval perplexity --text book.txt --context 4K --new 1K --windows 8 --methods full,hybrid-fixed:budget=0.05
  tandem eval perplexity --text book.txt --out runs/book            a folder of your own
  tandem eval perplexity --text book.txt --out runs/book --resume   goes on where ^C stopped it, with the same options

A window's context is prefilled with full attention; each further token is fed and scored through the method. The first
method is the baseline. Without --text: invented prose, as in RULER's embedded tasks. The run folder gets manifest.json,
windows.jsonl (each window's loss, also by position; the same bytes in every run on the same instruction set),
timings.jsonl, summary.json, report.md and plot.png.)";

constexpr std::uint64_t kProseSeed = 20260101;

struct PerplexityArguments {
  SessionOptions session;
  RunOptions run;
  std::string methods = "full,streaming,hybrid-fixed,hgca", text, context = "1K", scored = "256";
  std::uint32_t windows = 32, batch = 4;
};

/// The command as it can be typed again, without where the results go.
std::string command_of(const PerplexityArguments& a, const eval::PerplexityOptions& options) {
  return fmt::format("tandem eval perplexity --model {} --methods {}{} --context {} --new {} --windows {} --batch {}{}",
                     recorded_model(a.session.model), shell_word(fmt::format("{}", fmt::join(options.methods, ","))),
                     a.text.empty() ? "" : " --text " + shell_word(a.text), eval::length_text(options.context),
                     eval::length_text(options.scored), a.windows, a.batch, session_arguments(a.session));
}

void report_on(const RunOptions& run, eval::RunFolder& folder) {
  eval::PerplexitySummary summary = eval::summarise_perplexity(folder);
  summary.run.remarks = eval::method_remarks(summary.run.manifest.methods, summary.run.manifest.weights_hash);
  folder.write("summary.json", eval::to_json_text(summary));
  const auto text = [&](bool markdown, bool with_plot) {
    return eval::perplexity_report(summary, markdown, with_plot);
  };
  show_report(run, folder, eval::kPlot, text, "summary.json, windows.jsonl, timings.jsonl");
}

eval::Windows cut(const eval::PerplexityOptions& options, const Model& model) {
  try {
    return eval::cut_windows(options, model);
  } catch (const Interrupted&) {
    throw RunError("Interrupted; nothing was written.");
  }
}

void perplexity(const PerplexityArguments& arguments) {
  eval::PerplexityOptions options;
  options.methods = split_method_list(arguments.methods);
  options.context = parse_one_length(arguments.context, "--context");
  options.scored = parse_one_length(arguments.scored, "--new");
  options.windows = arguments.windows;
  options.batch = arguments.batch;
  options.shard = shard_of(arguments.run);
  if (options.windows < 1 || options.windows > 100000)
    throw_input_error("--windows is {}: give 1 to 100000.", options.windows);
  if (options.batch < 1 || options.batch > 256) throw_input_error("--batch is {}: give 1 to 256.", options.batch);
  check_run_options(arguments.run);
  check_trained(arguments.session);
  if (arguments.text.empty()) {
    options.seed = kProseSeed;
    options.text_name = "invented-prose";
  } else {
    options.text_name = repair_utf8(std::filesystem::path(arguments.text).filename().string());
    options.text_source = fmt::format("--text '{}'", arguments.text);
    options.text = read_text(arguments.text, options.text_source);
  }
  Session session = open_session(arguments.session, arguments.run.quiet);
  options.engine = session.engine;
  options.prefix_files = prefix_files_of(arguments.run, arguments.session, session);
  const eval::Windows windows = cut(options, session.model);
  check_free_memory(session, options.batch, options.context);
  say_hints(options.methods, arguments.session);
  eval::Manifest manifest;
  manifest.command = command_of(arguments, options);
  describe_session(arguments.session, session, manifest);
  eval::fill_manifest(options, manifest);
  eval::RunFolder folder = open_run(arguments.run, "perplexity", session, manifest);
  Progress progress("scoring", Progress::standard(arguments.run.quiet));
  options.progress = [&](std::uint64_t done, std::uint64_t total) { progress.update(done, total); };
  fill_run(
      arguments.run, folder, session, progress,
      [&] { eval::run_perplexity(options, windows, session.model, *session.device, *session.pool, folder); },
      [&] { report_on(arguments.run, folder); });
}

}  // namespace

void add_eval(Command app) {
  Command command =
      app.subcommand("eval", "Measures beside RULER: LongBench, L-Eval, reasoning, a needle by depth, perplexity");
  command.require_subcommand();
  command.footer(kEvalFooter);
  add_longbench(command);
  add_leval(command);
  add_reasoning(command);
  add_needle(command);
  Command inner = command.subcommand("perplexity", "Perplexity of a text when every token goes through a method");
  auto arguments = std::make_shared<PerplexityArguments>();
  inner
      .option("--methods", arguments->methods,
              "Methods with their options; the first is the baseline. By default fewer than compare takes: every "
              "scored token is a decode step of every method")
      .show_default();
  inner.option("--text", arguments->text, "A UTF-8 file (default: invented prose)");
  inner.option("--context", arguments->context, "Tokens of a window before the scored ones").show_default();
  inner.option("--new", arguments->scored, "Tokens of a window that are scored").show_default();
  inner.option("--windows", arguments->windows, "Windows of the text").show_default();
  inner.option("--batch", arguments->batch, "Windows decoded together").show_default();
  add_run_options(inner, arguments->run, "perplexity");
  add_session_options(inner, arguments->session, Models::trained);
  inner.footer(kPerplexityFooter);
  inner.callback([arguments] {
    settle_shard(arguments->run);
    perplexity(*arguments);
  });
}

}  // namespace tandem::cli
