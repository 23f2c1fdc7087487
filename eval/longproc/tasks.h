// LongProc (Ye et al. 2025, arXiv 2501.05414) as princeton-pli/LongProc (78e873a) loads and scores it. Of a checkout,
// data/<kind>/prompts.yaml and data/<kind>/<kind>_<0.5k, 2k or 8k>.json are read, and html_to_tsv's pages.
// Left out: pseudo_to_code, which upstream scores by running the program that the model wrote, and travel_planning,
// whose prompt and references upstream's own program writes.
#pragma once

#include "eval/run/prompt_dataset.h"

namespace tandem::eval {

/// InputError for a name that no task has.
void check_longproc_task(const std::string& task);

/// The files of these tasks ("countdown_2k"); none given: all that are there. InputError, naming file, sample and
/// field.
std::map<std::string, PromptFile> read_longproc(const std::filesystem::path& checkout, std::vector<std::string>& tasks);

/// By upstream's names; the first is the task's score. html_to_tsv: f1, precision, recall, extraction_rate; the others:
/// accuracy, partial_accuracy (of countdown -1 / lines where only the first line is there), extraction_rate.
Metrics longproc_scores(std::string_view task, std::string_view reference, std::string_view prediction);

}  // namespace tandem::eval
