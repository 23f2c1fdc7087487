// SentencePiece trusts the compiled character map inside a tokenizer.model: it walks the map's double-array trie and
// reads strings at the offsets found there without a bound. One changed bit can make it read outside the file.
#pragma once

#include <string_view>

namespace tandem {

/// Whether the file is a well-formed protocol-buffer message (of the wire types the format uses) and every character
/// map in it (normalizer_spec and denormalizer_spec, precompiled_charsmap) is such that no text can lead a lookup out
/// of the trie or out of its strings. Does not look at anything else.
bool character_maps_are_sound(std::string_view model);

}  // namespace tandem
