// tokenizer.model of SentencePiece (Llama 2, and the embedded model).
#pragma once

#include <filesystem>
#include <memory>

#include "engine/model/tokenizer.h"

namespace tandem {

/// Reads tokenizer.model, and from tokenizer_config.json, where there is one, add_bos_token and add_prefix_space (which
/// overrides the model's own rule).
std::unique_ptr<Tokenizer> load_sentencepiece(const std::filesystem::path& folder, std::uint32_t rows);

}  // namespace tandem
