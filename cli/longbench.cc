// tandem eval longbench: methods side by side on LongBench's published files.
#include "eval/longbench/longbench.h"

#include <fmt/ranges.h>

#include "cli/chat_format.h"
#include "cli/commands.h"
#include "cli/eval_run.h"
#include "cli/parse.h"
#include "cli/progress.h"
#include "cli/session.h"
#include "engine/common/error.h"
#include "eval/longbench/report.h"
#include "eval/run/decoded.h"
#include "methods/options.h"

namespace tandem::cli {
namespace {

constexpr const char* kLongbenchFooter = R"(
Examples:
  tandem eval longbench --data LongBench --model ~/models/Llama-3.1-8B-Instruct --chat --methods full,hgca,scoutattention
  tandem eval longbench --data LongBench --tasks qasper,hotpotqa --samples 50 --methods full,quest:budget=1024
  tandem eval longbench --data LongBench --tasks qasper_e --out runs/qasper            LongBench-E, by range of lengths
  tandem eval longbench --data LongBench --tasks qasper_e --out runs/qasper --resume   goes on where ^C stopped it

--data is the folder LongBench/ of github.com/THUDM/LongBench, whose config/ has the prompts, with the published data
(data.zip of huggingface.co/datasets/THUDM/LongBench) unpacked into its data/. Prompts, truncation, tokens to generate and
scores are upstream's; each prompt is prefilled once and decoded with every method, greedily. The first method is the
baseline. Scores of multifieldqa_zh, dureader and vcsum need Debian's python3-jieba: scripts/install_packages.sh --chinese.
Truncated prompts make scores comparable only at the same --max-length: upstream has 3500 for models of 4K, 7500 for 8K,
15500 for 16K, 31500 for 32K. Upstream asks models that it does not know without a template; --chat puts the model's own around prompts
but for the tasks that upstream leaves plain. The run folder gets what `tandem compare` writes, and longbench.json.)";

struct LongBenchCommand {
  SessionOptions session;
  RunOptions run;
  std::string data, tasks, max_length, methods = "full,streaming,quest,hgca,scoutattention", chat_format;
  std::optional<std::uint32_t> samples;  // none: all
  std::uint32_t batch = 1;
  bool chat = false;
};

/// The command as it can be typed again, without where the results go.
std::string command_of(const LongBenchCommand& c, const std::vector<std::string>& methods,
                       const eval::LongBench& benchmark) {
  std::string chat = c.chat ? " --chat" : "";
  if (!c.chat_format.empty()) chat += " --chat-format " + c.chat_format;
  const std::string samples = c.samples ? fmt::format(" --samples {}", *c.samples) : "";
  return fmt::format(
      "tandem eval longbench --data {} --model {} --methods {} --tasks {}{} --max-length {}{} --batch {}{}",
      shell_word(c.data), recorded_model(c.session.model), shell_word(fmt::format("{}", fmt::join(methods, ","))),
      fmt::join(benchmark.tasks(), ","), samples, benchmark.max_length(), chat, c.batch, session_arguments(c.session));
}

void report_on(const RunOptions& run, const eval::LongBench& benchmark, eval::RunFolder& folder) {
  write_report(
      run, folder, "longbench", [&](const eval::Summary&) { return eval::longbench_json(benchmark, folder); },
      [&](const eval::Summary& summary, bool markdown) {
        return eval::longbench_report(benchmark, folder, summary, markdown);
      });
}

std::uint32_t longest_prompt(const eval::LongBench& benchmark, bool quiet) {
  Progress progress("measuring prompts", Progress::standard(quiet));
  try {
    return benchmark.longest_prompt([&](std::uint64_t done, std::uint64_t total) { progress.update(done, total); });
  } catch (const Interrupted&) {
    progress.finish();
    throw RunError("Interrupted while prompts were measured; nothing was written.");
  }
}

void longbench(const LongBenchCommand& command) {
  eval::BenchmarkOptions options;
  options.methods = split_method_list(command.methods);
  options.batch = command.batch;
  check_first_samples(command.samples);
  if (options.batch < 1 || options.batch > 256) throw_input_error("--batch is {}: give 1 to 256.", options.batch);
  if (!command.chat && !command.chat_format.empty())
    throw_input_error("--chat-format belongs to prompts in a chat template: add --chat.");
  eval::LongBenchOptions what{command.data, {}, command.samples.value_or(0), 0, {}};
  if (!command.tasks.empty()) what.tasks = split_list(command.tasks, "--tasks");
  for (const std::string& task : what.tasks) eval::longbench_dataset(eval::longbench_dataset_of(task));
  if (!command.max_length.empty()) what.max_length = parse_one_length(command.max_length, "--max-length");
  check_run_options(command.run);
  check_trained(command.session);
  Session session = open_session(command.session, command.run.quiet);
  if (command.chat) what.template_of = choose_chat_format(command.chat_format, /*no_thinking=*/false, session.model);
  const eval::LongBench benchmark(std::move(what), session.model);
  options.engine = session.engine;
  const std::uint32_t longest = longest_prompt(benchmark, command.run.quiet);
  eval::check_device_room(options.engine, session.model, options.batch, longest, "--max-length");
  check_free_memory(session, options.batch, longest);
  if (command.tasks.empty()) {
    say_unread(
        "--data", command.data, eval::unread_longbench(command.data),
        "a name must be a data set's, as hotpotqa.jsonl, and LongBench-E's files are read beside others only where "
        "--tasks names them, as hotpotqa_e");
  }
  say_hints(options.methods, command.session);
  const EvalRun asked{command.session,
                      command.run,
                      "longbench",
                      "answering",
                      command_of(command, options.methods, benchmark),
                      [&](eval::Manifest& manifest) { benchmark.fill_manifest(options.methods, manifest); },
                      [&](eval::RunFolder& folder) { report_on(command.run, benchmark, folder); }};
  answer(asked, benchmark, options, session);
}

}  // namespace

void add_longbench(Command eval) {
  Command command = eval.subcommand("longbench", "LongBench's published files: upstream's prompts and scores");
  auto options = std::make_shared<LongBenchCommand>();
  command.option("--data", options->data, "Folder with LongBench's config/ and data/").required();
  command.option("--methods", options->methods, "Methods with their options; the first is the baseline").show_default();
  command.option(
      "--tasks", options->tasks,
      "Data sets, as qasper,hotpotqa; of LongBench-E: qasper_e [all that --data holds, LongBench-E's only where there "
      "are no others]");
  command.option("--samples", options->samples, "First samples of each task [all]");
  command.option("--max-length", options->max_length,
                 "Tokens of a prompt, whose middle is cut out where it has more [upstream's; of other models multiples "
                 "of 500 that "
                 "leave 576 positions]");
  command.option("--batch", options->batch, "Sequences decoded together").show_default();
  command.flag("--chat", options->chat, "Put a chat template around prompts");
  add_chat_format(command, options->chat_format);
  add_run_options(command, options->run, "longbench");
  add_session_options(command, options->session, Models::trained);
  command.footer(kLongbenchFooter);
  command.callback([options] {
    settle_shard(options->run);
    longbench(*options);
  });
}

}  // namespace tandem::cli
