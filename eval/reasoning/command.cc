// `tandem eval reasoning`.
#include "engine/common/error.h"
#include "eval/datasets.h"
#include "eval/reasoning/reasoning.h"
#include "eval/run/option_values.h"

namespace tandem::eval {
namespace {

class ReasoningCommand final : public FileCommand {
 public:
  ReasoningCommand()
      : FileCommand({.tasks = "Names of files, as aime24,math500 [all that --data holds]",
                     .samples = "First problems of each task [all]",
                     .check_task = answer_kind_of,
                     .unread = unread_reasoning,
                     .open = [this](const FileChoice& choice, const Model& model) {
                       static_cast<FileChoice&>(what_) = choice;
                       what_.thinking = !chat->no_thinking;
                       return std::make_unique<Reasoning>(what_, model);
                     }}) {}

  std::vector<DatasetOption> options() override {
    Sampling& how = what_.sampling;
    std::vector<DatasetOption> options = FileCommand::options();
    const std::vector<DatasetOption> own = {
        {"--repeats", &what_.repeats, "Answers drawn to each problem; Pass@1 is their mean"},
        {"--max-new", &max_new_, "Tokens of an answer at most; longer ones are cut off and wrong"},
        {"--temperature", &how.temperature,
         "0: the best token, always; above: draw tokens, 1 as the model says, less for likelier ones"},
        {"--top-k", &how.top_k, "Draw from the k best tokens (0: all)"},
        {"--top-p", &how.top_p, "Draw from the best tokens that together have this probability (1: all)"},
        {"--min-p", &how.min_p, "Draw from tokens at least this share as likely as the best one (0: all)"},
        {"--seed", &how.seed, "Seed of the draws"}};
    options.insert(options.end(), own.begin(), own.end());
    return options;
  }
  bool thinks() const override { return true; }

  void check(const DatasetHost& host) override {
    FileCommand::check(host);
    if (what_.repeats > 1024) throw_input_error("--repeats is {}: give at most 1024.", what_.repeats);
    for (const char* name : {"--top-k", "--top-p", "--min-p", "--seed"})
      if (what_.sampling.temperature == 0 && host.given(name))
        throw_input_error(
            "--top-k, --top-p, --min-p and --seed say how tokens are drawn: add --temperature above 0, 0.6 for "
            "example.");
    what_.max_new_tokens = parse_one_length(max_new_, "--max-new");
  }

 private:
  std::string max_new_ = "4K";
  ReasoningOptions what_;
};

}  // namespace

DatasetEntry reasoning_entry() {
  return {.name = "reasoning",
          .summary = "Pass@1 on AIME, MATH-500, GPQA and GSM8K beside FLOPs per token",
          .doing = "answering",
          .methods = "full,quest,tova,asyncspade",
          .data_help = "Folder with the problems' .jsonl files, or such files with commas between",
          .lengths = "the prompts",
          .file_rule = "a name must begin with aime, gsm8k, gpqa or math in lower case, as aime25.jsonl",
          .footer = R"(
Examples:
  tandem eval reasoning --data reasoning --model ~/models/Qwen3-8B --chat --max-new 32K --temperature 0.6 --top-p 0.95 --repeats 4
  tandem eval reasoning --data reasoning --tasks math500 --samples 50 --methods full,quest:budget=2048,tova:budget=2048
  tandem eval reasoning --data aime24.jsonl,aime25.jsonl --out runs/aime            files instead of a folder
  tandem eval reasoning --data aime24.jsonl,aime25.jsonl --out runs/aime --resume   goes on where ^C stopped it

--data holds files of one problem per line, {"prompt": "...", "answer": ...}; a file's name is its task and begins with
aime (answers are whole numbers), gsm8k (numbers), gpqa (A to D) or math (LaTeX). Answers behind </think> are found and
compared by the rules of lm-evaluation-harness (gsm8k), simple-evals (gpqa) and Math-Verify (aime, math);
docs/answer_rules.md lists them, and the report has Pass@1 by each published rule alone, too. Answers that --max-new cuts off
count as wrong. Greedy unless --temperature is above 0; then --repeats answers to each problem are drawn, with the same
random numbers for every method, and Pass@1 is their mean. The first method is the baseline. The run folder gets what
`tandem compare` writes, and reasoning.json, which scripts/plot_reproduction.py draws as AsyncSpade's figure 9.)",
          .make = [] { return std::unique_ptr<DatasetCommand>(std::make_unique<ReasoningCommand>()); }};
}

}  // namespace tandem::eval
