// `tandem eval leval`.
#include "eval/datasets.h"
#include "eval/leval/leval.h"

namespace tandem::eval {

DatasetEntry leval_entry() {
  return {.name = "leval",
          .summary = "L-Eval's published files: upstream's prompts and scores",
          .doing = "answering",
          .methods = "full,streaming,quest,hgca,scoutattention",
          .data_help = "Folder with L-Eval's Closed-ended-tasks/ and Open-ended-tasks/",
          .lengths = "--max-length",
          .file_rule =
              "a name must be a data set's, in the folder of its kind, as in Open-ended-tasks/legal_contract_qa.jsonl",
          .footer = R"(
Examples:
  tandem eval leval --data LEval-data --model ~/models/Llama-3.1-8B-Instruct --chat --methods full,hgca,scoutattention
  tandem eval leval --data LEval-data --tasks financial_qa,gov_report_summ --methods full,fluxion:heads=fixed,bgt=0.05,slope=0
  tandem eval leval --data LEval-data --tasks tpo --samples 50 --out runs/tpo
  tandem eval leval --data LEval-data --tasks tpo --samples 50 --out runs/tpo --resume     goes on where ^C stopped it

--data is the folder LEval-data/ of github.com/OpenLMLab/LEval. Each question is asked with its whole document; instructions,
truncation, tokens to generate (512) and the scores that need no judge are upstream's: exact match of exams, F1 of answers,
ROUGE of summaries. Each prompt is prefilled once and decoded with every method, greedily; the first method is the
baseline. Documents for a language model's judgement alone, and sci_fi, are not asked. Figures are comparable at the same
--max-length only. The run folder gets what `tandem compare` writes, and leval.json.)",
          .make = [] {
            return file_command(
                {.tasks = "Data sets, as tpo,financial_qa [all that --data holds but sci_fi]",
                 .samples = "First questions of each task [all]",
                 .max_length = "Tokens of a document, of which only the first words are kept where it has more [as "
                               "many as the model has positions for beside answer and longest question]",
                 .reading = "reading documents",
                 .check_task = [](const std::string& task) { leval_dataset(task); },
                 .unread = unread_leval,
                 .open = open_dataset<LEval>});
          }};
}

}  // namespace tandem::eval
