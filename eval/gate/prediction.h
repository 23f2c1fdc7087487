// Predicted steps at a large shape, where KV is most of the work: what compare keeps of a run and gate judges.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "eval/predict/prediction.h"
#include "eval/report/schema.h"

namespace tandem::eval {

/// A model's shape, a machine and a batch. At the default one, 12 x 32K of an 8B model, full's KV just fits on the
/// machine, and Quest's budget of 512 tokens instead of 128 makes its step 2 % longer.
struct GateShape {
  std::string model = "llama-3.1-8b", hardware = "h100";
  std::uint32_t batch = 12, context = 32768;  // sequences, prompt tokens of each
};

/// Written by `compare` into the run's folder.
inline constexpr const char* kPredictionFile = "predicted.json";

struct GatePrediction {
  Prediction target;
  std::string hardware_hash;  // of the profile's content, 16 hexadecimal digits

  /// The row of a run's method; null where there is none.
  const PredictedRow* row_of(const std::string& label) const;
};

/// A method to predict: its label in the run, and the spec that is simulated for it.
struct PredictedMethod {
  std::string label, spec;
};
/// As the label says, with what a simulated shape needs in place of what was trained for the embedded model.
PredictedMethod as_typed(const MethodEntry& method);
/// With every option spelled out, so that a default that has changed since counts.
PredictedMethod spelled_out(const MethodEntry& method);

/// Few steps of each method by this program, from the published workload. Methods that cannot run there are rows that
/// say why. InputError as check_target(), and for a shape or a profile that does not exist.
GatePrediction predict_steps(const GateShape& shape, const std::vector<PredictedMethod>& methods,
                             const std::function<bool()>& interrupted);

std::string gate_prediction_json(const GatePrediction& prediction);
/// Reads the run's stored prediction; nullopt without the file. InputError names a damaged file and its field.
std::optional<GatePrediction> stored_prediction(const std::filesystem::path& folder);
/// The same of target.json, which `compare --as` writes with the run's own hardware profile.
std::optional<GatePrediction> stored_target(const std::filesystem::path& folder, const Manifest& manifest);

/// "llama-3.1-8b, 12 x 32K, h100"
std::string shape_text(const Prediction& target);

/// Names how shape, machine or workload differ, as the middle of a sentence; empty where they are the same.
std::string shape_difference(const GatePrediction& baseline, const GatePrediction& run);

}  // namespace tandem::eval
