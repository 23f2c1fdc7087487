// tandem eval reasoning: Pass@1 of methods side by side on AIME, MATH-500, GPQA and GSM8K, beside FLOPs per token.
#include "eval/reasoning/reasoning.h"

#include <fmt/ranges.h>

#include "cli/chat_format.h"
#include "cli/commands.h"
#include "cli/eval_run.h"
#include "cli/parse.h"
#include "cli/session.h"
#include "engine/common/error.h"
#include "eval/reasoning/report.h"
#include "eval/report/table.h"
#include "eval/run/decoded.h"
#include "methods/options.h"

namespace tandem::cli {
namespace {

constexpr const char* kReasoningFooter = R"(
Examples:
  tandem eval reasoning --data reasoning --model ~/models/Qwen3-8B --chat --max-new 32K --temperature 0.6 --top-p 0.95 --repeats 4
  tandem eval reasoning --data reasoning --tasks math500 --samples 50 --methods full,quest:budget=2048,tova:budget=2048
  tandem eval reasoning --data aime24.jsonl,aime25.jsonl --out runs/aime            files instead of a folder
  tandem eval reasoning --data aime24.jsonl,aime25.jsonl --out runs/aime --resume   goes on where ^C stopped it

--data holds files of one problem per line, {"prompt": "...", "answer": ...}; a file's name is its task and begins with
aime (answers are whole numbers), gsm8k (numbers), gpqa (A to D) or math (LaTeX). Answers behind </think> are found and
compared by the rules of lm-evaluation-harness (gsm8k), simple-evals (gpqa) and Math-Verify (aime, math);
docs/reasoning.md lists them, and the report has Pass@1 by each published rule alone, too. Answers that --max-new cuts off
count as wrong. Greedy unless --temperature is above 0; then --repeats answers to each problem are drawn, with the same
random numbers for every method, and Pass@1 is their mean. The first method is the baseline. The run folder gets what
`tandem compare` writes, and reasoning.json, which scripts/plot_reproduction.py draws as AsyncSpade's figure 9.)";

struct ReasoningCommand {
  SessionOptions session;
  RunOptions run;
  eval::ReasoningOptions what;
  std::string tasks, max_new = "4K", methods = "full,quest,tova,asyncspade", chat_format;
  std::optional<std::uint32_t> samples;  // none: all
  std::uint32_t batch = 1;
  bool chat = false, no_thinking = false;
  bool filtered = false;  // --top-k and the like were given
};

/// The command as it can be typed again, without where the results go.
std::string command_of(const ReasoningCommand& c, const std::vector<std::string>& methods,
                       const eval::Reasoning& benchmark) {
  const eval::ReasoningOptions& o = benchmark.options();
  std::string more = o.samples == 0 ? "" : fmt::format(" --samples {}", o.samples);
  if (const Sampling& how = o.sampling; how.temperature > 0) {
    more += fmt::format(" --repeats {} --temperature {} --top-k {} --top-p {} --min-p {} --seed {}", o.repeats,
                        how.temperature, how.top_k, how.top_p, how.min_p, how.seed);
  }
  if (c.chat) more += " --chat";
  if (!c.chat_format.empty()) more += " --chat-format " + c.chat_format;
  if (c.no_thinking) more += " --no-thinking";
  return fmt::format("tandem eval reasoning --data {} --model {} --methods {} --tasks {} --max-new {}{} --batch {}{}",
                     shell_word(o.data), recorded_model(c.session.model),
                     shell_word(fmt::format("{}", fmt::join(methods, ","))),
                     shell_word(fmt::format("{}", fmt::join(o.tasks, ","))), eval::length_text(o.max_new_tokens), more,
                     c.batch, session_arguments(c.session));
}

void report_on(const RunOptions& run, const eval::Reasoning& benchmark, const ModelConfig& config,
               eval::RunFolder& folder) {
  write_report(
      run, folder, "reasoning",
      [&](const eval::Summary& summary) { return eval::reasoning_json(benchmark, config, folder, summary); },
      [&](const eval::Summary& summary, bool markdown) {
        return eval::reasoning_report(benchmark, config, folder, summary, markdown);
      });
}

void check_command(const ReasoningCommand& command) {
  const eval::ReasoningOptions& what = command.what;
  check_first_samples(command.samples);
  if (what.repeats > 1024) throw_input_error("--repeats is {}: give at most 1024.", what.repeats);
  if (command.batch < 1 || command.batch > 256) throw_input_error("--batch is {}: give 1 to 256.", command.batch);
  if (!command.chat && (command.no_thinking || !command.chat_format.empty()))
    throw_input_error("--chat-format and --no-thinking belong to prompts in a chat template: add --chat.");
  if (what.sampling.temperature == 0 && command.filtered)
    throw_input_error(
        "--top-k, --top-p, --min-p and --seed say how tokens are drawn: add --temperature above 0, 0.6 for example.");
  check_run_options(command.run);
  check_trained(command.session);
}

void reasoning(const ReasoningCommand& command) {
  eval::BenchmarkOptions options;
  options.methods = split_method_list(command.methods);
  options.batch = command.batch;
  check_command(command);
  eval::ReasoningOptions what = command.what;
  what.samples = command.samples.value_or(0);
  if (!command.tasks.empty()) what.tasks = split_list(command.tasks, "--tasks");
  for (const std::string& task : what.tasks) eval::answer_kind_of(task);
  what.max_new_tokens = parse_one_length(command.max_new, "--max-new");
  Session session = open_session(command.session, command.run.quiet);
  if (command.chat) what.template_of = choose_chat_format(command.chat_format, command.no_thinking, session.model);
  what.thinking = !command.no_thinking;
  const eval::Reasoning benchmark(std::move(what), session.model);
  options.engine = session.engine;
  eval::check_device_room(options.engine, session.model, options.batch, benchmark.longest_prompt(), "the prompts");
  check_free_memory(session, options.batch, benchmark.longest_prompt());
  if (command.tasks.empty()) {
    say_unread("--data", command.what.data, eval::unread_reasoning(command.what.data),
               "a name must begin with aime, gsm8k, gpqa or math in lower case, as aime25.jsonl");
  }
  say_hints(options.methods, command.session);
  const EvalRun asked{
      command.session,
      command.run,
      "reasoning",
      "answering",
      command_of(command, options.methods, benchmark),
      [&](eval::Manifest& manifest) { benchmark.fill_manifest(options.methods, manifest); },
      [&](eval::RunFolder& folder) { report_on(command.run, benchmark, session.model.config, folder); }};
  answer(asked, benchmark, options, session);
}

}  // namespace

void add_reasoning(Command eval) {
  Command command = eval.subcommand("reasoning", "Pass@1 on AIME, MATH-500, GPQA and GSM8K beside FLOPs per token");
  auto options = std::make_shared<ReasoningCommand>();
  eval::ReasoningOptions& what = options->what;
  command.option("--data", what.data, "Folder with the problems' .jsonl files, or such files with commas between")
      .required();
  command.option("--methods", options->methods, "Methods with their options; the first is the baseline").show_default();
  command.option("--tasks", options->tasks, "Names of files, as aime24,math500 [all that --data holds]");
  command.option("--samples", options->samples, "First problems of each task [all]");
  command.option("--repeats", what.repeats, "Answers drawn to each problem; Pass@1 is their mean").show_default();
  command.option("--max-new", options->max_new, "Tokens of an answer at most; longer ones are cut off and wrong")
      .show_default();
  command
      .option("--temperature", what.sampling.temperature,
              "0: the best token, always; above: draw tokens, 1 as the model says, less for likelier ones")
      .show_default();
  command.option("--top-k", what.sampling.top_k, "Draw from the k best tokens (0: all)").show_default();
  command
      .option("--top-p", what.sampling.top_p, "Draw from the best tokens that together have this probability (1: all)")
      .show_default();
  command
      .option("--min-p", what.sampling.min_p, "Draw from tokens at least this share as likely as the best one (0: all)")
      .show_default();
  command.option("--seed", what.sampling.seed, "Seed of the draws").show_default();
  command.option("--batch", options->batch, "Sequences decoded together").show_default();
  command.flag("--chat", options->chat, "Put a chat template around prompts");
  add_chat_format(command, options->chat_format);
  add_no_thinking(command, options->no_thinking);
  add_run_options(command, options->run, "reasoning");
  add_session_options(command, options->session, Models::trained);
  command.footer(kReasoningFooter);
  command.callback([options, command] {
    settle_shard(options->run);
    for (const char* name : {"--top-k", "--top-p", "--min-p", "--seed"})
      options->filtered = options->filtered || command.given(name);
    reasoning(*options);
  });
}

}  // namespace tandem::cli
