// tandem eval leval: methods side by side on L-Eval's published files.
#include "eval/leval/leval.h"

#include <fmt/ranges.h>

#include "cli/chat_format.h"
#include "cli/commands.h"
#include "cli/eval_run.h"
#include "cli/interrupt.h"
#include "cli/parse.h"
#include "cli/progress.h"
#include "cli/session.h"
#include "engine/common/error.h"
#include "eval/leval/report.h"
#include "eval/run/decoded.h"
#include "methods/options.h"

namespace tandem::cli {
namespace {

constexpr const char* kLevalFooter = R"(
Examples:
  tandem eval leval --data LEval-data --model ~/models/Llama-3.1-8B-Instruct --chat --methods full,hgca,scoutattention
  tandem eval leval --data LEval-data --tasks financial_qa,gov_report_summ --methods full,fluxion:heads=fixed,bgt=0.05,slope=0
  tandem eval leval --data LEval-data --tasks tpo --samples 50 --out runs/tpo
  tandem eval leval --data LEval-data --tasks tpo --samples 50 --out runs/tpo --resume     goes on where ^C stopped it

--data is the folder LEval-data/ of github.com/OpenLMLab/LEval. Each question is asked with its whole document; instructions,
truncation, tokens to generate (512) and the scores that need no judge are upstream's: exact match of exams, F1 of answers,
ROUGE of summaries. Each prompt is prefilled once and decoded with every method, greedily; the first method is the
baseline. Documents for a language model's judgement alone, and sci_fi, are not asked. Figures are comparable at the same
--max-length only. The run folder gets what `tandem compare` writes, and leval.json.)";

struct LEvalCommand {
  SessionOptions session;
  RunOptions run;
  std::string data, tasks, max_length, methods = "full,streaming,quest,hgca,scoutattention", chat_format;
  std::optional<std::uint32_t> samples;  // none: all
  std::uint32_t batch = 1;
  bool chat = false;
};

/// The command as it can be typed again, without where the results go.
std::string command_of(const LEvalCommand& c, const std::vector<std::string>& methods, const eval::LEval& benchmark) {
  std::string chat = c.chat ? " --chat" : "";
  if (!c.chat_format.empty()) chat += " --chat-format " + c.chat_format;
  const std::string samples = c.samples ? fmt::format(" --samples {}", *c.samples) : "";
  return fmt::format("tandem eval leval --data {} --model {} --methods {} --tasks {}{} --max-length {}{} --batch {}{}",
                     shell_word(c.data), recorded_model(c.session.model),
                     shell_word(fmt::format("{}", fmt::join(methods, ","))), fmt::join(benchmark.tasks(), ","), samples,
                     benchmark.max_length(), chat, c.batch, session_arguments(c.session));
}

void report_on(const RunOptions& run, const eval::LEval& benchmark, eval::RunFolder& folder) {
  write_report(
      run, folder, "leval", [&](const eval::Summary&) { return eval::leval_json(benchmark, folder); },
      [&](const eval::Summary& summary, bool markdown) {
        return eval::leval_report(benchmark, folder, summary, markdown);
      });
}

eval::LEval read(eval::LEvalOptions what, const Model& model, bool quiet) {
  Progress progress("reading documents", Progress::standard(quiet));
  what.progress = [&](std::uint64_t done, std::uint64_t total) { progress.update(done, total); };
  what.interrupted = interrupted;
  try {
    return {std::move(what), model};
  } catch (const Interrupted&) {
    progress.finish();
    throw RunError("Interrupted while documents were read; nothing was written.");
  }
}

void leval(const LEvalCommand& command) {
  eval::BenchmarkOptions options;
  options.methods = split_method_list(command.methods);
  options.batch = command.batch;
  check_first_samples(command.samples);
  if (options.batch < 1 || options.batch > 256) throw_input_error("--batch is {}: give 1 to 256.", options.batch);
  if (!command.chat && !command.chat_format.empty())
    throw_input_error("--chat-format belongs to prompts in a chat template: add --chat.");
  eval::LEvalOptions what{command.data, {}, command.samples.value_or(0), 0, {}};
  if (!command.tasks.empty()) what.tasks = split_list(command.tasks, "--tasks");
  for (const std::string& task : what.tasks) eval::leval_dataset(task);
  if (!command.max_length.empty()) what.max_length = parse_one_length(command.max_length, "--max-length");
  eval::method_entries(options.methods);  // wrong names, before files are read
  check_run_options(command.run);
  check_trained(command.session);
  Session session = open_session(command.session, command.run.quiet);
  if (command.chat) what.template_of = choose_chat_format(command.chat_format, /*no_thinking=*/false, session.model);
  const eval::LEval benchmark = read(std::move(what), session.model, command.run.quiet);
  options.engine = session.engine;
  eval::check_device_room(options.engine, session.model, options.batch, benchmark.longest_prompt(), "--max-length");
  check_free_memory(session, options.batch, benchmark.longest_prompt());
  if (command.tasks.empty()) {
    say_unread(
        "--data", command.data, eval::unread_leval(command.data),
        "a name must be a data set's, in the folder of its kind, as in Open-ended-tasks/legal_contract_qa.jsonl");
  }
  say_hints(options.methods, command.session);
  const EvalRun asked{command.session,
                      command.run,
                      "leval",
                      "answering",
                      command_of(command, options.methods, benchmark),
                      [&](eval::Manifest& manifest) { benchmark.fill_manifest(options.methods, manifest); },
                      [&](eval::RunFolder& folder) { report_on(command.run, benchmark, folder); }};
  answer(asked, benchmark, options, session);
}

}  // namespace

void add_leval(Command eval) {
  Command command = eval.subcommand("leval", "L-Eval's published files: upstream's prompts and scores");
  auto options = std::make_shared<LEvalCommand>();
  command.option("--data", options->data, "Folder with L-Eval's Closed-ended-tasks/ and Open-ended-tasks/").required();
  command.option("--methods", options->methods, "Methods with their options; the first is the baseline").show_default();
  command.option("--tasks", options->tasks, "Data sets, as tpo,financial_qa [all that --data holds but sci_fi]");
  command.option("--samples", options->samples, "First questions of each task [all]");
  command.option("--max-length", options->max_length,
                 "Tokens of a document, of which only the first words are kept where it has more [as many "
                 "as the model has positions for beside answer and longest question]");
  command.option("--batch", options->batch, "Sequences decoded together").show_default();
  command.flag("--chat", options->chat, "Put a chat template around prompts");
  add_chat_format(command, options->chat_format);
  add_run_options(command, options->run, "leval");
  add_session_options(command, options->session, Models::trained);
  command.footer(kLevalFooter);
  command.callback([options] {
    settle_shard(options->run);
    leval(*options);
  });
}

}  // namespace tandem::cli
