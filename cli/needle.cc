// tandem eval needle: where in a context, and how long a one, methods still find a needle.
#include "eval/needle/needle.h"

#include <fmt/ranges.h>

#include "cli/commands.h"
#include "cli/eval_run.h"
#include "cli/parse.h"
#include "cli/session.h"
#include "engine/common/error.h"
#include "eval/needle/report.h"
#include "eval/report/table.h"
#include "eval/ruler/texts.h"
#include "eval/run/decoded.h"
#include "methods/options.h"

namespace tandem::cli {
namespace {

constexpr const char* kNeedleFooter = R"(
Examples:
  tandem eval needle                                     five methods, depths 0 to 100 %, embedded model
  tandem eval needle --methods full,quest:budget=256,scoutattention:budget=256 --lengths 1K,2K,4K --samples 10
  tandem eval needle --model ~/models/Llama-3.1-8B --lengths 8K,32K,128K --depths 0,25,50,75,100
  tandem eval needle --task niah_multikey_1 --ruler-essays essays.txt --out runs/needle
  tandem eval needle --resume --out runs/needle ...      goes on where ^C stopped it, with the same options

One needle, a key and its number, stands behind --depths per cent of the haystack, and the question comes last; needles,
texts and scores are those of RULER's embedded tasks (`tandem compare`), where depths are drawn. Each prompt is prefilled once
and decoded with every method. The first method is the baseline. full-offload and full-host lose nothing: their maps are
full's, to the token. The run folder gets what `tandem compare` writes, plot.png being a map for each method.)";

struct NeedleCommand {
  SessionOptions session;
  RunOptions run;
  std::string methods = "full,streaming,quest:budget=512,hgca,scoutattention:budget=512";
  std::string lengths = "512,1K,2K", depths = "0,10,20,30,40,50,60,70,80,90,100", task = "niah_single_2", essays;
  std::uint32_t samples = 5, batch = 1;
  std::uint64_t seed = 42;
};

/// The command as it can be typed again, without where the results go.
std::string command_of(const NeedleCommand& c, const std::vector<std::string>& methods,
                       const eval::NeedleOptions& what) {
  std::vector<std::string> lengths;  // as parsed: a run made with 1024 is resumed with 1K
  lengths.reserve(what.lengths.size());
  for (const std::uint32_t length : what.lengths) lengths.push_back(eval::length_text(length));
  const std::string essays = c.essays.empty() ? "" : " --ruler-essays " + shell_word(c.essays);
  return fmt::format(
      "tandem eval needle --model {} --methods {} --task {}{} --lengths {} --depths {} --samples {} --seed {} --batch "
      "{}{}",
      recorded_model(c.session.model), shell_word(fmt::format("{}", fmt::join(methods, ","))), c.task, essays,
      fmt::join(lengths, ","), fmt::join(what.depths, ","), c.samples, c.seed, c.batch, session_arguments(c.session));
}

void report_on(const NeedleCommand& command, eval::RunFolder& folder) {
  eval::Summary summary = eval::summarise(folder);
  summary.remarks = eval::method_remarks(summary.manifest.methods, summary.manifest.weights_hash);
  folder.write("summary.json", eval::to_json_text(summary));
  const auto text = [&](bool markdown, bool with_plot) {
    return eval::report_text(summary, markdown, /*with_plot=*/false, /*by_task=*/false) +
           eval::needle_report(summary, markdown) + (with_plot ? "\n![Recall by depth and length](plot.png)\n" : "");
  };
  show_report(command.run, folder, "eval/needle/plot_needle.py", text, "summary.json, samples.jsonl, timings.jsonl");
}

void needle(const NeedleCommand& command) {
  eval::BenchmarkOptions options;
  options.methods = split_method_list(command.methods);
  options.batch = command.batch;
  if (options.batch < 1 || options.batch > 256) throw_input_error("--batch is {}: give 1 to 256.", options.batch);
  if (command.samples < 1 || command.samples > 100000)
    throw_input_error("--samples is {}: give 1 to 100000.", command.samples);
  eval::NeedleOptions what;
  what.task = eval::find_one_needle_task(command.task).name;
  for (const std::string& depth : split_list(command.depths, "--depths"))
    what.depths.push_back(static_cast<std::uint32_t>(parse_count(depth, "--depths", 0, 100)));
  what.lengths = parse_lengths(command.lengths, "--lengths");
  what.samples = command.samples;
  what.seed = command.seed;
  if (!command.essays.empty()) eval::check_hidden_in_prose(what.task);
  what.texts = eval::read_ruler_texts({command.essays, {}}, {what.task});
  check_run_options(command.run);
  check_trained(command.session);
  Session session = open_session(command.session, command.run.quiet);
  const eval::NeedleBenchmark benchmark(what, session.model);
  options.engine = session.engine;
  eval::check_device_room(options.engine, session.model, options.batch, benchmark.longest_prompt(), "--lengths");
  check_free_memory(session, options.batch, benchmark.longest_prompt());
  say_hints(options.methods, command.session);
  const EvalRun asked{command.session,
                      command.run,
                      "needle",
                      "searching",
                      command_of(command, options.methods, what),
                      [&](eval::Manifest& manifest) { benchmark.fill_manifest(options.methods, manifest); },
                      [&](eval::RunFolder& folder) { report_on(command, folder); }};
  answer(asked, benchmark, options, session);
}

}  // namespace

void add_needle(Command eval) {
  Command command = eval.subcommand("needle", "Recall of a needle by its depth and the context's length, as a map");
  auto options = std::make_shared<NeedleCommand>();
  command.option("--methods", options->methods, "Methods with their options; the first is the baseline").show_default();
  command.option("--lengths", options->lengths, "Context lengths in tokens, answer included").show_default();
  command.option("--depths", options->depths, "Per cent of the haystack before the needle").show_default();
  command
      .option("--task", options->task,
              "What is hidden in what: a task of RULER with one needle (niah_single_1 to 3, niah_multikey_1 to 3)")
      .show_default();
  command.option("--ruler-essays", options->essays,
                 "Text around the needle: {\"text\": ...} in a .json, or plain text (default: invented prose)");
  command.option("--samples", options->samples, "Samples of each depth and length").show_default();
  command.option("--seed", options->seed, "Seed of the samples").show_default();
  command.option("--batch", options->batch, "Sequences decoded together").show_default();
  add_run_options(command, options->run, "needle");
  add_session_options(command, options->session, Models::trained);
  command.footer(kNeedleFooter);
  command.callback([options] {
    settle_shard(options->run);
    needle(*options);
  });
}

}  // namespace tandem::cli
