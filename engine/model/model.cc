#include "engine/model/model.h"

#include <algorithm>
#include <fmt/format.h>
#include <vector>

#include "engine/common/error.h"
#include "engine/common/json.h"
#include "engine/common/paths.h"
#include "engine/model/json_fields.h"
#include "engine/model/presets.h"
#include "engine/model/safetensors.h"

namespace tandem {
namespace {

std::filesystem::path find_folder(const std::string& name) {
  namespace fs = std::filesystem;
  const fs::path shipped = data_path("models");
  if (name == "embedded") return shipped / kEmbeddedModel;
  std::vector<std::string> known = {"embedded"};
  std::error_code refused;
  for (const auto& entry : fs::directory_iterator(shipped))
    if (std::filesystem::exists(entry.path() / "config.json", refused))
      known.push_back(entry.path().filename().string());
  std::sort(known.begin() + 1, known.end());
  // A bare name is a shipped model wherever the program is started; "./seed" is a folder.
  if (std::ranges::find(known, name) != known.end()) return shipped / name;
  if (fs::is_directory(name, refused)) return name;
  if (fs::exists(name, refused)) throw_input_error("'{}' is a file; give the folder of a Hugging Face model.", name);
  const std::string shown = name.size() > 200 ? name.substr(0, 200) + "..." : name;
  throw_input_error("There is no model '{}': give the folder of a Hugging Face model, {} or synthetic:<preset>.{}",
                    shown, fmt::join(known, ", "), did_you_mean(shown, known));
}

std::string name_of(const std::filesystem::path& folder) {
  std::error_code refused;
  const std::filesystem::path full = std::filesystem::canonical(folder, refused);  // "." has a name too
  return (refused ? folder : full).filename().string();
}

/// Random bf16 weights at a published shape. The embedded model's tokenizer encodes prompts: every published vocabulary
/// has its ids. Answers mean nothing and have no text.
Model synthetic_model(const std::string& name, bool with_tokenizer) {
  Model model;
  model.name = name;
  model.synthetic = true;
  model.config = preset_config(name.substr(kSyntheticPrefix.size()));
  model.weights = random_weights(model.config, DType::bf16, /*seed=*/1);
  model.weights_hash = fmt::format("{:016x}", model.weights.hash);
  model.config_hash = hash_digits(name);
  if (with_tokenizer) model.tokenizer = load_tokenizer(data_path("models") / kEmbeddedModel);
  return model;
}

}  // namespace

Model load_model(const std::string& name_or_folder, bool with_tokenizer, const WeightPlace& place) {
  if (name_or_folder.starts_with(kSyntheticPrefix)) return synthetic_model(name_or_folder, with_tokenizer);
  Model model;
  model.folder = find_folder(name_or_folder);
  model.name = name_or_folder == "embedded" ? "embedded" : name_of(model.folder);
  model.config = load_config(model.folder);
  model.weights = load_weights(model.folder, model.config, place);
  model.weights_hash = fmt::format("{:016x}", model.weights.hash);
  model.config_hash = hash_digits(json_text(read_json_object(model.folder / "config.json")));
  if (with_tokenizer) {
    model.tokenizer = load_tokenizer(model.folder, model.config.vocab);
    if (model.tokenizer->vocab_size() > model.config.vocab)
      throw_input_error("{}: the tokenizer has {} pieces, config.json a vocabulary of {}.", model.folder.string(),
                        model.tokenizer->vocab_size(), model.config.vocab);
  }
  return model;
}

Model load_shape(const std::string& preset_or_folder) {
  Model model;
  model.synthetic = true;
  std::error_code refused;
  if (std::filesystem::is_directory(preset_or_folder, refused)) {
    model.folder = preset_or_folder;
    model.name = name_of(model.folder);
    model.config = load_config(model.folder);
  } else {
    const std::vector<std::string> presets = preset_names();
    if (std::ranges::find(presets, preset_or_folder) == presets.end())
      throw_input_error("There is no model shape '{}': give the folder of a Hugging Face model, or {}.{}",
                        preset_or_folder, fmt::join(presets, ", "), did_you_mean(preset_or_folder, presets));
    model.name = preset_or_folder;
    model.config = preset_config(preset_or_folder);
  }
  model.weights = shape_weights(model.config, DType::bf16);
  return model;
}

}  // namespace tandem
