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
std::unique_ptr<Tokenizer> make_sentencepiece_tokenizer(const SentencePieceSpec& spec, std::uint32_t rows);

/// tokenizer.model of `folder` with what the files beside it say; InputError for anything damaged or not supported.
SentencePieceSpec read_tokenizer_model(const std::filesystem::path& folder);

[[noreturn]] void refuse_sentencepiece(const std::string& file);

// A model from a tokenizer.json that holds its pieces and their merges:

/// The model, serialized, whose ids are those of `merges`: a piece's score is the rank of its first merge. InputError
/// naming `file` where no scores do: a merge is missing, or the merges into a piece do not follow each other.
std::string sentencepiece_of(const Vocabulary& vocabulary, const Merges& merges, const std::string& unknown,
                             bool prefix_space, const std::string& file);

/// Normalizers of older files: every space becomes the mark, and a text that is not empty gets one in front.
std::string mark_spaces(std::string_view text);
std::string mark_spaces_and_prepend(std::string_view text);

}  // namespace tandem
