// Predicted steps: what compare keeps of a run and the gate judges.
#include <algorithm>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "engine/common/error.h"
#include "engine/common/json.h"
#include "engine/common/read_file.h"
#include "engine/device/profile.h"
#include "engine/model/presets.h"
#include "engine/model/safetensors.h"
#include "eval/gate/gate.h"
#include "eval/report/json_fields.h"
#include "eval/report/table.h"
#include "methods/registry.h"

namespace tandem::eval {
namespace {

constexpr std::uint32_t kSteps = 3;  // the first is not in the mean

/// The spec as a simulated shape can run it. An unknown method stays as it is: its row says why it is refused.
std::string for_shapes(const std::string& spec) {
  try {
    return spec_for_shapes(spec);
  } catch (const InputError&) {
    return spec;
  }
}

}  // namespace

const PredictedRow* GatePrediction::row_of(const std::string& label) const {
  const auto found = std::ranges::find_if(target.rows, [&](const PredictedRow& row) {
    return (row.compared.empty() ? row.method : row.compared) == label;
  });
  return found == target.rows.end() ? nullptr : &*found;
}

PredictedMethod as_typed(const MethodEntry& method) {
  return {method.label, for_shapes(method.label)};
}

PredictedMethod spelled_out(const MethodEntry& method) {
  std::string spec = method.name;
  for (const auto& [name, value] : method.options)
    spec += fmt::format("{}{}={}", spec == method.name ? ":" : ",", name, value);
  return {method.label, for_shapes(spec)};
}

GatePrediction predict_steps(const GateShape& shape, const std::vector<PredictedMethod>& methods,
                             const std::function<bool()>& interrupted) {
  const HardwareProfile hardware = load_profile(shape.hardware);
  const Model model = load_shape(shape.model);
  PredictionOptions options;
  for (const PredictedMethod& method : methods) {
    options.methods.push_back(method.spec);
    options.compared.push_back(method.label);
  }
  options.batch = shape.batch;
  options.context = shape.context;
  options.steps = kSteps;
  options.checked = false;  // compare --as, simulate and the tests look for races
  options.interrupted = interrupted;
  return {predict(model, hardware, shipped_workload("published"), options), hash_digits(profile_to_json(hardware))};
}

std::string gate_prediction_json(const GatePrediction& prediction) {
  nlohmann::ordered_json json;
  json["schema_version"] = 1;
  json["hardware_hash"] = prediction.hardware_hash;
  json["target"] = parse_ordered_json(prediction_json(prediction.target), "the prediction");
  return json_text(json, 1) + "\n";
}

std::optional<GatePrediction> stored_prediction(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / kPredictionFile;
  if (!path_exists(file)) return std::nullopt;
  const nlohmann::ordered_json json = parse_ordered_json(read_file(file), file.string());
  ObjectReader in(json, file.string());
  if (in.integer<int>("schema_version") != 1) in.fail("schema_version", "1");
  GatePrediction prediction;
  prediction.hardware_hash = in.text("hardware_hash", /*may_be_empty=*/false);
  prediction.target = parse_prediction(json_text(in.object("target")), file.string() + ", target");
  in.finish();
  return prediction;
}

std::optional<GatePrediction> stored_target(const std::filesystem::path& folder, const Manifest& manifest) {
  const std::filesystem::path file = folder / "target.json";
  if (!path_exists(file)) return std::nullopt;
  return GatePrediction{parse_prediction(read_file(file), file.string()), manifest.hardware_hash};
}

std::string shape_text(const Prediction& target) {
  return fmt::format("{}, {} x {}, {}", target.model, target.batch, length_text(target.context), target.hardware);
}

std::string shape_difference(const GatePrediction& baseline, const GatePrediction& run) {
  std::vector<std::string> parts;
  const auto compare = [&](const char* what, const auto& before, const auto& now) {
    if (before != now) parts.push_back(fmt::format("{} is {} in the baseline and {} in the run", what, before, now));
  };
  const Prediction &a = baseline.target, &b = run.target;
  compare("the shape", a.model, b.model);
  compare("the machine", a.hardware, b.hardware);
  if (a.hardware == b.hardware) compare("the hash of the machine's profile", baseline.hardware_hash, run.hardware_hash);
  compare("the batch", a.batch, b.batch);
  compare("the context", a.context, b.context);
  compare("the number of layers", a.layers, b.layers);
  compare("the number of steps", a.steps, b.steps);
  compare("the prefill chunk", a.prefill_chunk, b.prefill_chunk);
  if (workload_to_json(a.workload) != workload_to_json(b.workload))
    parts.push_back(fmt::format("the workload, {} in the baseline and {} in the run, has other figures",
                                a.workload.name, b.workload.name));
  return fmt::format("{}", fmt::join(parts, "; "));
}

}  // namespace tandem::eval
