// What a tokenizer.model of SentencePiece says, as far as Hugging Face's readers look at it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

struct SentencePieceModel {
  enum Type : std::uint64_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };
  struct Piece {
    std::string text;
    float score = 0;
    std::uint64_t type = normal;
  };
  std::vector<Piece> pieces;
  bool byte_pairs = false;                               // BPE; otherwise unigram, word or character
  bool byte_fallback = false;                            // characters without a piece become bytes
  bool prefix_space = true;                              // add_dummy_prefix
  bool removes_spaces = true;                            // remove_extra_whitespaces
  std::string bos = "<s>", eos = "</s>", unk = "<unk>";  // empty where the model has none
};

/// `bytes`: a well-formed message, as character_maps_are_sound() finds it.
SentencePieceModel read_sentencepiece_model(std::string_view bytes);

/// The model with byte pair encoding of its pieces by score, as SentencePiece's library loads it. Text is taken as it
/// is: no map of characters, every space kept.
std::string serialize_sentencepiece(const SentencePieceModel& model);

/// Behind a serialized model, replaces its own rule: serialized messages merge when they are joined.
std::string normalizer_with_prefix(bool prefix_space);

}  // namespace tandem
