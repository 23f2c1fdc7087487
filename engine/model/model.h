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
  std::string weights_hash;
};

/// "embedded", the name of a folder in models/, or the path of a Hugging Face folder. InputError otherwise.
/// `with_tokenizer = false`: for folders that have none.
Model load_model(const std::string& name_or_folder, bool with_tokenizer = true);

}  // namespace tandem
