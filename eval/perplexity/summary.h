// A perplexity run in figures, from its folder alone.
#pragma once

#include <string>
#include <vector>

#include "eval/report/run_folder.h"
#include "eval/report/statistics.h"
#include "eval/report/summary.h"

namespace tandem::eval {

struct MethodLoss {
  std::string label;                    // as typed
  std::vector<double> nll;              // per window, in their order: mean nats of a token
  Estimate loss;                        // mean of `nll`; IntervalKind::none where all windows are alike, as one is
  Estimate difference;                  // to the baseline, window by window; n is 0 for the baseline itself
  std::vector<double> nll_by_position;  // means over the windows, per stretch of the scored tokens
};

struct PerplexitySummary {
  Summary run;                      // manifest, completeness and latency; no accuracy
  std::uint32_t scored = 0;         // tokens of a window
  std::vector<MethodLoss> methods;  // as run.methods
};

/// InputError for a run without windows, with windows that score different numbers of tokens, and what
/// RunFolder::windows() and timings() refuse.
PerplexitySummary summarise_perplexity(const RunFolder& folder);

std::string perplexity_report(const PerplexitySummary& summary, bool markdown, bool with_plot = false);
std::string to_json_text(const PerplexitySummary& summary);

}  // namespace tandem::eval
