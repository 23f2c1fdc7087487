// tandem eval <dataset>: methods side by side on a dataset (eval/datasets.h).
#include "cli/commands.h"
#include "cli/eval_run.h"
#include "eval/datasets.h"
#include "methods/options.h"

namespace tandem::cli {
namespace {

constexpr const char* kEvalFooter = R"(
Examples:
  tandem eval perplexity --text book.txt                  how much a method loses when every token goes through it
  tandem eval longbench --data LongBench --model ~/llama --chat    questions, summaries and code, as published
  tandem eval longproc --data LongProc --model ~/llama --chat      long answers that a procedure determines
  tandem eval leval --data LEval-data --model ~/llama --chat       exams, questions and summaries, as published
  tandem eval reasoning --data reasoning --model ~/qwen3 --chat    Pass@1 on AIME, MATH-500, GPQA beside FLOPs
  tandem eval needle --lengths 1K,2K,4K                   where in a context methods still find a needle)";

void add_dataset(Command eval, const eval::DatasetEntry& entry) {
  Command command = eval.subcommand(entry.name, entry.summary);
  auto asked = std::make_shared<EvalCommand>(entry);
  if (entry.data_help != nullptr) command.option(entry.data_option, asked->dataset->data, entry.data_help).required();
  command.option("--methods", asked->methods, kMethodsHelp).show_default();
  add_eval_options(command, *asked);
  add_run_options(command, asked->run, entry.name);
  add_session_options(command, asked->session, Models::trained);
  command.footer(entry.footer);
  command.callback([asked, command] {
    settle_shard(asked->run);
    const std::vector<std::string> methods = split_method_list(asked->methods);
    PreparedEval prepared = prepare_eval(*asked, command, methods);
    const char* name = asked->entry.name;
    answer(*asked, prepared, name, recorded_command(*asked, std::string("eval ") + name, methods, *prepared.dataset));
  });
}

}  // namespace

void add_eval(Command app) {
  Command command = app.subcommand(
      "eval", "Methods on a dataset: RULER, LongBench, L-Eval, LongProc, reasoning, needles, perplexity");
  command.require_subcommand();
  command.footer(kEvalFooter);
  add_ruler(command);
  for (const eval::DatasetEntry& entry : eval::datasets()) add_dataset(command, entry);
}

}  // namespace tandem::cli
