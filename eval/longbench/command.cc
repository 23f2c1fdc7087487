// `tandem eval longbench`.
#include "eval/datasets.h"
#include "eval/longbench/longbench.h"

namespace tandem::eval {

DatasetEntry longbench_entry() {
  return {.name = "longbench",
          .summary = "LongBench's published files: upstream's prompts and scores",
          .doing = "answering",
          .methods = "full,streaming,quest,hgca,scoutattention",
          .data_help = "Folder with LongBench's config/ and data/",
          .lengths = "--max-length",
          .file_rule =
              "a name must be a data set's, as hotpotqa.jsonl, and LongBench-E's files are read beside others only "
              "where --tasks names them, as hotpotqa_e",
          .footer = R"(
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
but for the tasks that upstream leaves plain. The run folder gets what `tandem compare` writes, and longbench.json.)",
          .make = [] {
            return file_command(
                {.tasks = "Data sets, as qasper,hotpotqa; of LongBench-E: qasper_e [all that --data holds, "
                          "LongBench-E's only where there are no others]",
                 .max_length = "Tokens of a prompt, whose middle is cut out where it has more [upstream's; of other "
                               "models multiples of 500 that leave 576 positions]",
                 .reading = "measuring prompts",
                 .check_task = [](const std::string& task) { longbench_dataset(longbench_dataset_of(task)); },
                 .unread = unread_longbench,
                 .open = open_dataset<LongBench>});
          }};
}

}  // namespace tandem::eval
