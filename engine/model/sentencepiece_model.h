// What a tokenizer.model of SentencePiece says, as far as Hugging Face's readers look at it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

inline constexpr const char* kSpaceMark = "\xE2\x96\x81";  // U+2581, which stands for a space in pieces

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
  bool space_suffix = false;                             // treat_whitespace_as_suffix
  bool maps_characters = false;                          // precompiled_charsmap
  bool prefix_space = true;                              // add_dummy_prefix
  bool removes_spaces = true;                            // remove_extra_whitespaces
  std::string bos = "<s>", eos = "</s>", unk = "<unk>";  // empty where the model has none
};

/// Whether the file is a well-formed protocol-buffer message and no text can lead a lookup out of its character maps
/// (precompiled_charsmap of normalizer_spec and denormalizer_spec). The library walks a map's double-array trie and
/// reads strings at the offsets found there without a bound: one changed bit can make it read outside the file.
bool character_maps_are_sound(std::string_view model);

/// `bytes`: a well-formed message, as character_maps_are_sound() finds it.
SentencePieceModel read_sentencepiece_model(std::string_view bytes);

/// The model with byte pair encoding of its pieces by score, as SentencePiece's library loads it. Text is taken as it
/// is: no map of characters, every space kept.
std::string serialize_sentencepiece(const SentencePieceModel& model);

/// Behind a serialized model, replaces its own rule: serialized messages merge when they are joined.
std::string normalizer_with_prefix(bool prefix_space);

/// Whether texts for the model that `bytes` serialize may be cut at text_border(), with the ids that the whole text has
/// there: the library takes a whole text at a time, and about 180 bytes of memory per byte. False for a malformed file.
///
/// Byte pair encoding merges neighbours whose pieces make up a piece. It merges nothing across a space behind a letter,
/// or across a line end, if no piece has a space behind something else, or a line end beside something else. That holds
/// for BPE models that take every character as it is, such as Llama 2's: no character map (it could look across the
/// border), no removal of white space, no suffixed spaces, byte fallback instead of a piece for unknown characters
/// (neighbours of which become one). A unigram model sums scores in float32 over the whole text.
bool can_be_cut(std::string_view bytes);

/// The first border from `from` (above 0) on; text.size() where there is none.
std::size_t text_border(std::string_view text, std::size_t from);

}  // namespace tandem
