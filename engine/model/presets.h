// Shapes of published models, for speed runs with random weights: `--model synthetic:<preset>`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/model/config.h"

namespace tandem {

constexpr std::string_view kSyntheticPrefix = "synthetic:";

std::vector<std::string> preset_names();

/// The configuration as published in the model's config.json on Hugging Face. InputError for an unknown name.
ModelConfig preset_config(const std::string& name);

/// Number of parameters, tied embeddings counted once.
std::uint64_t parameter_count(const ModelConfig& config);

}  // namespace tandem
