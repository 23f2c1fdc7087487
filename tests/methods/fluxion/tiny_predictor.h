// A file with a predictor for the tiny model: sinks=16, window=32.
#pragma once

#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "engine/kernels/head_features.h"
#include "methods/fluxion/labels.h"
#include "tests/engine/model/model_folder.h"

namespace tandem::testing {

/// A predictor file for the tiny model, of these tensors and those that say what it was trained for.
class PredictorFile {
 public:
  void add(const std::string& tensor, const char* type, std::vector<std::uint32_t> shape, const auto& values) {
    const std::size_t begin = body_.size();
    body_.append(reinterpret_cast<const char*>(values.data()), values.size() * 4);
    header_[tensor] = {{"dtype", type}, {"shape", shape}, {"data_offsets", {begin, body_.size()}}};
  }
  std::filesystem::path write(const std::filesystem::path& path, BudgetPolicy policy) {
    add("limits", "F32", {2}, std::vector<float>{0.1f, 0.95f});
    add("model", "I32", {7}, std::vector<std::int32_t>{2, 4, 2, 16, 16, 32, static_cast<std::int32_t>(policy)});
    write_bytes(path, safetensors_bytes(header_.dump(), body_));
    return path;
  }

 private:
  Json header_ = Json::object();
  std::string body_;
};

/// A predictor for the tiny model whose three outputs change with every feature. `weights`: the hash that it names, as
/// two numbers; empty: none.
inline std::filesystem::path write_predictor(const TemporaryFolder& folder, std::vector<std::uint32_t> weights = {}) {
  PredictorFile predictor;
  if (!weights.empty()) predictor.add("weights", "I32", {2}, weights);
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  const auto noise = [&](std::size_t n, float scale) {
    std::vector<float> values(n);
    for (float& x : values) x = scale * normal(random);
    return values;
  };
  std::vector<float> deviation(kFeatures, 3.0f);
  deviation[kHostTokens] = deviation[kDeviceTokens] = 300;
  predictor.add("feature.mean", "F32", {41}, std::vector<float>(kFeatures));
  predictor.add("feature.std", "F32", {41}, deviation);
  predictor.add("heads.bias", "F32", {3}, std::vector<float>{0.75f, 0.06f, -0.1f});
  std::vector<float> heads = noise(48, 1);
  for (std::size_t i = 0; i < heads.size(); ++i) heads[i] *= i < 16 ? 0.15f : i < 32 ? 0.005f : 0.3f;
  predictor.add("heads.weight", "F32", {3, 16}, heads);
  predictor.add("trunk.0.bias", "F32", {16}, noise(16, 0.2f));
  predictor.add("trunk.0.weight", "F32", {16, 41}, noise(16 * 41, 0.3f));
  return predictor.write(folder.path() / "predictor.safetensors", BudgetPolicy::fluxion);
}

}  // namespace tandem::testing
