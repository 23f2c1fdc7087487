// Pass@1 beside what decoding cost, the figure of AsyncSpade's evaluation (its figures 1 and 9), behind the report that
// all runs have.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/model/config.h"
#include "eval/reasoning/reasoning.h"
#include "eval/report/run_folder.h"
#include "eval/report/summary.h"

namespace tandem::eval {

/// Of one task and method.
struct ReasoningFigures {
  std::uint64_t answers = 0, tokens = 0;         // generated
  std::uint64_t cut = 0;                         // answers of all the tokens that may be generated: wrong
  std::uint64_t without_answer = 0;              // ended, but with no final answer in it: wrong
  std::map<std::string, std::uint64_t> decided;  // answers by the rule that found them, cut ones included
  std::map<std::string, double> by_rule;         // mean score by each published rule alone, cut ones included
  std::optional<double> context;                 // tokens of context of a decode step, mean over steps, if any
  std::vector<std::uint64_t> steps;              // decode steps by their tokens of context
};

/// Answers of one task and method.
ReasoningFigures reasoning_figures(const std::vector<SampleResult>& answers, std::uint32_t max_new_tokens);

/// A row per task and method. FLOPs are by the published formulas (eval/compare/published_flops.h), the mean over
/// steps.
std::string reasoning_report(const Reasoning& benchmark, const ModelConfig& config, const RunFolder& folder,
                             const Summary& summary, bool markdown);

/// The same figures, a point per task and method, in the form of a comparison's flops.json, so that
/// scripts/plot_reproduction.py draws both.
std::string reasoning_json(const Reasoning& benchmark, const ModelConfig& config, const RunFolder& folder,
                           const Summary& summary);

}  // namespace tandem::eval
