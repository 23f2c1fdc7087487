// Golden files made by scripts/make_goldens.py: logits and greedy continuations by Hugging Face transformers in f32.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "engine/common/json.h"
#include "engine/common/paths.h"

namespace tandem::testing {

struct Golden {
  std::string model;  // "embedded" or a folder
  std::uint32_t vocab = 0;
  std::vector<std::int32_t> tokens;
  std::vector<std::uint32_t> positions;
  std::vector<float> logits;  // [positions][vocab]
  std::vector<std::int32_t> greedy;
  std::vector<double> inverse_frequency;  // [D / 2] of RoPE, after scaling
  double rotation_scale = 1;
};

inline std::filesystem::path golden_folder() {
  return source_folder() / "tests" / "golden";
}

inline Golden load_golden(const std::string& name) {
  std::ifstream file(golden_folder() / (name + ".json"));
  std::stringstream text;
  text << file.rdbuf();
  const nlohmann::json json = parse_json(text.str(), name);
  Golden golden;
  golden.model = json.at("model").get<std::string>();
  if (golden.model != "embedded") golden.model = (source_folder() / golden.model).string();
  golden.vocab = json.at("vocab").get<std::uint32_t>();
  golden.tokens = json.at("tokens").get<std::vector<std::int32_t>>();
  golden.positions = json.at("positions").get<std::vector<std::uint32_t>>();
  golden.greedy = json.at("greedy").get<std::vector<std::int32_t>>();
  golden.inverse_frequency = json.at("inverse_frequency").get<std::vector<double>>();
  golden.rotation_scale = json.at("rotation_scale").get<double>();
  golden.logits.resize(golden.positions.size() * golden.vocab);
  std::ifstream numbers(golden_folder() / (name + ".f32"), std::ios::binary);
  numbers.exceptions(std::ios::failbit | std::ios::badbit);
  numbers.read(reinterpret_cast<char*>(golden.logits.data()),
               static_cast<std::streamsize>(golden.logits.size() * sizeof(float)));
  return golden;
}

}  // namespace tandem::testing
