#include "engine/model/model.h"

#include <vector>

#include "engine/common/error.h"
#include "engine/common/paths.h"

namespace tandem {
namespace {

constexpr const char* kEmbedded = "seed";  // folder of models/

std::filesystem::path find_folder(const std::string& name) {
  namespace fs = std::filesystem;
  if (name == "embedded") return data_path(std::string("models/") + kEmbedded);
  if (fs::is_directory(name)) return name;
  const fs::path shipped = data_path("models");
  std::vector<std::string> known = {"embedded"};
  for (const auto& entry : fs::directory_iterator(shipped)) {
    if (entry.is_directory()) known.push_back(entry.path().filename().string());
  }
  for (const std::string& k : known) {
    if (k == name) return shipped / name;
  }
  throw_input_error("There is no model '{}': give the folder of a Hugging Face model, or one of {}.{}", name,
                    join_names(known), did_you_mean(name, known));
}

}  // namespace

Model load_model(const std::string& name_or_folder, bool with_tokenizer) {
  Model model;
  model.folder = find_folder(name_or_folder);
  model.name = name_or_folder == "embedded" ? "embedded" : model.folder.filename().string();
  if (model.name.empty()) model.name = model.folder.parent_path().filename().string();
  model.config = load_config(model.folder);
  model.weights = load_weights(model.folder, model.config);
  model.weights_hash = fmt::format("{:016x}", model.weights.hash);
  if (with_tokenizer) {
    model.tokenizer = load_tokenizer(model.folder);
    if (model.tokenizer->vocab_size() > model.config.vocab) {
      throw_input_error("{}: the tokenizer has {} pieces, config.json a vocabulary of {}.", model.folder.string(),
                        model.tokenizer->vocab_size(), model.config.vocab);
    }
  }
  return model;
}

}  // namespace tandem
