// LongBench's figures as upstream prints them, beside the report that all runs have.
#pragma once

#include <string>

#include "eval/longbench/longbench.h"
#include "eval/report/run_folder.h"
#include "eval/report/summary.h"

namespace tandem::eval {

/// Per task and method, in percent with two digits as upstream's eval.py rounds them, and means over tasks. Tasks of
/// LongBench-E have a row for each range of lengths. A task without a finished sample of a method shows "-".
std::string longbench_report(const LongBench& benchmark, const RunFolder& folder, const Summary& summary,
                             bool markdown);

/// The same figures: {"methods": {<label>: {<task>: 41.23, <task of E>: {"0-4k": ...}}}}.
std::string longbench_json(const LongBench& benchmark, const RunFolder& folder);

}  // namespace tandem::eval
