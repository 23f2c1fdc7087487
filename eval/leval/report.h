// L-Eval's figures as upstream prints them, beside the report that all runs have.
#pragma once

#include <string>

#include "eval/leval/leval.h"
#include "eval/report/run_folder.h"
#include "eval/report/summary.h"

namespace tandem::eval {

/// Per task and method in per cent: exact match, F1, or ROUGE-1, -2 and -L with the geometric mean of their means,
/// which upstream calls the score of a summary; of topic_retrieval the mean of the three places' rounded means. Four
/// digits behind the point, as upstream rounds them, in the JSON; two in the table. A task without all samples of a
/// method shows "-".
std::string leval_report(const LEval& benchmark, const RunFolder& folder, const Summary& summary, bool markdown);

/// {"protocol_id": ..., "methods": {<label>: {<task>: {"exact_match": ...} or {"f1": ...} or {"rouge1": ...}}}}.
std::string leval_json(const LEval& benchmark, const RunFolder& folder);

}  // namespace tandem::eval
