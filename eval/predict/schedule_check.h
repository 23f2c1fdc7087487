// Looks for races in a method's schedule at a small shape. A schedule at a heavy point is the same with more pages,
// rows and steps, and looking for races there took half to two thirds of a point's time.
#pragma once

#include <string>

#include "eval/predict/prediction.h"

namespace tandem::eval {

/// Decodes a few steps of up to two sequences of `options.context` and of a little less with two KV heads, and checks
/// every pair of accesses. HazardError for a race. A method that refuses two
/// KV heads is checked with all of the model's.
void check_schedule(const Model& shape, const HardwareProfile& hardware, const Workload& workload,
                    const PredictionOptions& options, const std::string& method);

}  // namespace tandem::eval
