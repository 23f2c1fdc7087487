// `tandem eval longproc`.
#include "eval/datasets.h"
#include "eval/longproc/tasks.h"

namespace tandem::eval {

DatasetEntry longproc_entry() {
  return {.name = "longproc",
          .summary = "LongProc: long answers that a procedure determines, scored by upstream's rules",
          .doing = "answering",
          .methods = "full,streaming,quest,hgca,scoutattention",
          .data_help = "Checkout of github.com/princeton-pli/LongProc, or a folder with its data/",
          .lengths = "the prompts",
          .footer = R"(
Examples:
  tandem eval longproc --data LongProc --model ~/models/Llama-3.1-8B-Instruct --chat --tasks html_to_tsv_0.5k --samples 20
  tandem eval longproc --data LongProc --model ~/llama --chat --tasks countdown_2k --methods full,quest:budget=2048,h2o
  tandem eval longproc --data LongProc --model ~/llama --chat --out runs/longproc --resume    goes on where ^C stopped it

Answers of 500 to 8,000 tokens, in which every line depends on lines before: tables from web pages (html_to_tsv), routes
(path_traversal), who believes what (tom_tracking) and searches (countdown), each at 0.5k, 2k and 8k. An error that a method
makes in one step stays in its answer. Prompts, tokens to generate (1,024, 3,072, 9,216) and scores are upstream's;
pseudo_to_code, which runs programs that the model wrote, and travel_planning are not asked. The prompt is one user message:
give --chat. Answers are greedy; the first method is the baseline. The run folder gets what `tandem compare` writes, and
longproc.json.)",
          .make = [] {
            return prompt_command(
                {.name = "longproc",
                 .title = "LongProc",
                 .protocol = "+score:upstream",
                 .note = "Means over samples in per cent, by upstream's names: f1 of rows and accuracy of whole "
                         "answers are the scores; extraction_rate is the share of answers that have the asked form.",
                 .check_task = check_longproc_task,
                 .read = read_longproc,
                 .scores = longproc_scores},
                "Files in data/, as html_to_tsv_0.5k,countdown_2k [all that are there]");
          }};
}

}  // namespace tandem::eval
