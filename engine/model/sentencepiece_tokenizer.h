// Tokenizers that SentencePiece's library runs: tokenizer.model (Llama 2, and the embedded model).
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "engine/model/added_tokens.h"

namespace tandem {

/// Which stretches of a text between added tokens get a space in front, where the model puts one at all.
struct PrefixRule {
  bool first_only = false;        // the one that begins the text
  bool not_before_space = false;  // none that begins with a space
};

/// `normalize`, where there is one, puts the spaces in front itself, and marks all of them.
struct SentencePieceSpec : TokenizerSpec {
  std::string model;  // as serialized for the library
  PrefixRule prefix;
};

/// `rows`: of the model's embedding.
std::unique_ptr<Tokenizer> make_sentencepiece_tokenizer(SentencePieceSpec spec, std::uint32_t rows);

/// tokenizer.model of `folder` with what the files beside it say; InputError for anything damaged or not supported.
SentencePieceSpec read_tokenizer_model(const std::filesystem::path& folder);

[[noreturn]] void refuse_sentencepiece(const std::string& file);

}  // namespace tandem
