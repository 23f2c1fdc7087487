// tokenizer.model of SentencePiece (Llama 2, and the embedded model).
#pragma once

#include <filesystem>
#include <memory>

#include "engine/model/tokenizer.h"

namespace tandem {

/// Reads tokenizer.model, the tokens that files beside it add (see read_listed_tokens; special ones, up to the
/// embedding's `rows`), and from tokenizer_config.json, where there is one, add_bos_token and add_prefix_space (which
/// overrides the model's own rule).
std::unique_ptr<Tokenizer> load_sentencepiece(const std::filesystem::path& folder, std::uint32_t rows);

}  // namespace tandem
