// A model: configuration, weights, tokenizer.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "engine/model/config.h"
#include "engine/model/tokenizer.h"
#include "engine/model/weights.h"

namespace tandem {

struct Model {
  ModelConfig config;
  ModelWeights weights;
  std::unique_ptr<Tokenizer> tokenizer;  // nullptr only for models made in memory
  std::filesystem::path folder;
  std::string name;
  bool synthetic = false;    // random weights: for speed only
  std::string weights_hash;  // 16 hexadecimal digits, over the bytes of the weight files
  std::string config_hash;   // as that, of what config.json says; of a synthetic one's name
};

/// The folder of the shipped models/ that "embedded" is.
inline constexpr const char* kEmbeddedModel = "deep";

/// "embedded", the name of a folder in the shipped models/, or the path of a Hugging Face folder; a bare name that is
/// both is the shipped one; "synthetic:<preset>" has random weights (presets.h). InputError otherwise, with the nearest
/// name. Weights are read once for their hash, wherever `place` has them. `with_tokenizer = false`: for folders that
/// have none.
Model load_model(const std::string& name_or_folder, bool with_tokenizer = true, const WeightPlace& place = {});

/// A published shape without tensors, for simulating it: a preset's name, or the folder of a Hugging Face model, of
/// which only config.json is read. Weights count as bf16; there is no tokenizer. InputError with the nearest name.
Model load_shape(const std::string& preset_or_folder);

}  // namespace tandem
