// When a run counts as good as its baseline: the rules, on numbers alone.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "eval/report/statistics.h"
#include "eval/report/summary.h"

namespace tandem::eval {

/// cannot_tell: nothing shows that the run is worse, and the samples are too few to show that it is not.
enum class Verdict : std::uint8_t { passed, cannot_tell, failed };
const char* to_string(Verdict verdict);  // "passed", "cannot tell", "failed"

inline constexpr std::uint64_t kMostNeeded = 200000;  // what judge_accuracy() looks for more samples than

struct AccuracyVerdict {
  Verdict verdict = Verdict::passed;
  double before = 0, after = 0;  // mean scores
  PairedEstimate change;         // after - before, with the interval that reports have
  std::uint64_t needed = 0;      // where it cannot tell: samples_needed()
};

/// `scores`: first the baseline's, second the run's; `margin`, a share of 1. In this order:
///   failed       a loss is significant at `alpha`: by McNemar's test, two-sided, so that a run as good as the baseline
///                fails about alpha / 2 of the time; where samples have shares, by the paired interval of that level
///   passed       the 95 % interval of the difference ends above -margin
///   cannot tell  else
AccuracyVerdict judge_accuracy(const PairedScores& scores, double margin, double alpha);

/// About how many samples a run that is as good as the baseline must have, in four of five runs, for judge_accuracy()
/// to find the interval above -margin: of pairs like these, which disagree as often, one of them at least, but as often
/// for the run as against it. kMostNeeded where it is more. Needs a pair and a margin above 0.
std::uint64_t samples_needed(const PairedScores& scores, double margin);

struct TimeVerdict {
  Verdict verdict = Verdict::passed;
  std::string what;                           // "TPOT"
  std::uint32_t length = 0;                   // 0: all lengths
  std::string shape;                          // of a predicted step: where; empty: the run's own model
  std::optional<double> before_ms, after_ms;  // of virtual time
  std::optional<double> change;               // 0.1: the run takes 10 % longer; none where there is nothing to compare
  std::optional<Interval> interval;           // of `change`, 95 %, where the clock is measured and samples suffice
  double margin = 0;                          // the largest `change` that passes
  std::string remark;  // failed: where the device waits longer; cannot tell: which run has no such time; else empty
};

/// Virtual time, which has no noise: more than `margin` fails. `change` is left out where `before_ms` is 0.
TimeVerdict judge_exact(double before_ms, double after_ms, double margin);

/// Measured time: `log_ratios` of run to baseline, one for each sample (or batch) of both. The change is their
/// geometric mean, with a bootstrap interval. All of the interval above `margin` fails, all of it below passes; fewer
/// than five ratios tell nothing. Needs a ratio.
TimeVerdict judge_measured(std::span<const double> log_ratios, double margin);

}  // namespace tandem::eval
