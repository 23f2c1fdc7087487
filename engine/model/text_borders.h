// Where a text may be cut for SentencePiece, which takes a whole text at a time and about 180 bytes of memory for each
// of its bytes: a part's ids must be those that the whole text has there.
//
// Byte pair encoding merges neighbours whose pieces make up a piece. Before a space behind a letter, and before a line
// end, nothing is ever merged if no piece has a space behind something else, or a line end beside something else: then
// what is on either side is encoded as if it were alone. That holds for BPE models that take every character as it is:
// no character map (it could look across the border), no removal of white space, no suffixed spaces, no piece for
// unknown characters (neighbours of which become one), which byte fallback makes superfluous. Llama 2's is such a
// model. A unigram model is not: it sums scores in float32 over the whole text.
#pragma once

#include <cstddef>
#include <string_view>

namespace tandem {

/// Whether texts for this tokenizer.model may be cut at text_border(). False for a malformed file.
bool can_be_cut(std::string_view model);

/// The first border from `from` (above 0) on; text.size() where there is none.
std::size_t text_border(std::string_view text, std::size_t from);

}  // namespace tandem
