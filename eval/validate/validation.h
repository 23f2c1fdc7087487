// A validation: all points of a file beside their predictions, the errors by kind and machine, and how to show them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "eval/report/statistics.h"
#include "eval/validate/predict.h"

namespace tandem::eval {

/// Errors of points of one kind, relative to what was measured; above 0: predicted as too slow.
struct ErrorGroup {
  std::string what, device;  // device empty: all
  const char* level = "machine";
  std::string points;       // "calibration" (the cost model was fitted to them), "validation", "in L2 cache", "apart"
  Estimate absolute, bias;  // means, with 95 % bootstrap intervals
  double worst = 0;         // the error that is farthest from 0
  double in_range = 0;      // share of the points that lie in their prediction's range
  double half_width = 0;    // median of the ranges: how far an end lies from the middle, as a share
};

struct Validation {
  std::string file;
  std::vector<Comparison> comparisons;  // as the points stand in the file

  std::vector<ErrorGroup> by_kind() const;
  std::vector<ErrorGroup> by_device() const;
};

/// `progress`: in points. Interrupted where `interrupted` says so.
Validation validate(const std::vector<MeasuredPoint>& points, std::string file,
                    const std::function<void(std::uint64_t done, std::uint64_t total)>& progress,
                    const std::function<bool()>& interrupted);

/// How much longer than a serving time a predicted step of the same shape may be, which includes no prefill.
inline constexpr double kAboveServing = 1.1;

/// Tables by kind and by machine, what is an upper bound, and what was skipped and why. `every_point`: each point's
/// error, too.
std::string validation_text(const Validation& validation, bool markdown, bool every_point);
std::string validation_json(const Validation& validation, const std::string& command, const std::string& program);

}  // namespace tandem::eval
