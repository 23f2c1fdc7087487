// A SentencePiece model from a tokenizer.json that holds its pieces and their merges.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/model/bpe_tokenizer.h"
#include "engine/model/sentencepiece_model.h"
#include "engine/model/sentencepiece_tokenizer.h"

namespace tandem {

/// The model, serialized, whose ids are those of `merges`: a piece's score is the rank of the first merge that makes
/// it. InputError naming `file` where no scores do: a merge is missing that the pieces would allow, or the merges into
/// one piece do not follow each other.
std::string sentencepiece_of(const Vocabulary& vocabulary,
                             const std::vector<std::pair<std::string, std::string>>& merges, const std::string& unknown,
                             bool prefix_space, const std::string& file);

/// Normalizers of older files: every space becomes the mark, and a text that is not empty gets one in front.
std::string mark_spaces(std::string_view text);
std::string mark_spaces_and_prepend(std::string_view text);

}  // namespace tandem
