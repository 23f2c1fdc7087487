#include "engine/model/tokenizer.h"

#include "engine/common/error.h"
#include "engine/common/read_file.h"
#include "engine/model/bpe_tokenizer.h"
#include "engine/model/sentencepiece_tokenizer.h"
#include "engine/model/utf8.h"

namespace tandem {

std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& folder, std::uint32_t rows) {
  if (path_exists(folder / "tokenizer.json")) return load_tokenizer_json(folder, rows);
  if (path_exists(folder / "tokenizer.model")) {
    if (is_tiktoken(folder / "tokenizer.model")) return make_bpe_tokenizer(read_tiktoken(folder), rows);
    return make_sentencepiece_tokenizer(read_tokenizer_model(folder), rows);
  }
  if (path_exists(folder / "vocab.json")) return make_bpe_tokenizer(read_vocab_merges(folder), rows);
  throw_input_error("{} has no tokenizer: neither tokenizer.model nor tokenizer.json nor vocab.json with merges.txt.",
                    folder.string());
}

std::string StreamingDecoder::push(std::int32_t token) {
  const std::string bytes = tokenizer_.bytes_of(token, first_);
  if (first_ && !tokenizer_.bytes_of(token, false).empty())
    first_ = false;  // a lone leading space gives nothing, yet is one
  pending_ += bytes;
  const std::size_t whole = pending_.size() - unfinished_utf8(pending_);
  std::string text = repair_utf8(std::string_view(pending_).substr(0, whole));
  pending_.erase(0, whole);
  return text;
}

std::string StreamingDecoder::finish() {
  std::string text = repair_utf8(pending_);
  pending_.clear();
  return text;
}

}  // namespace tandem
