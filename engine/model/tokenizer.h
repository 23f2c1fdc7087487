// Text to token ids and back, exactly as the model's own tokenizer.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

/// What text that looks like a special token ("<|im_end|>", "</s>") becomes: ordinary tokens (of a prompt, which must
/// not be able to end itself) or the special token (of a chat template's output).
enum class Specials { as_text, parsed };

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  /// `add_bos`: the text begins a sequence, so bos() comes first where the files say so. Invalid UTF-8: U+FFFD.
  virtual std::vector<std::int32_t> encode(std::string_view text, bool add_bos,
                                           Specials specials = Specials::as_text) const = 0;
  /// The ids of encode(text, false), in parts of at least `part_bytes` bytes of text (the last may be shorter; where a
  /// text has no place for a certain cut, a part is longer), as long as `take` returns true. Each part is encoded when
  /// it is its turn: for long texts of which only the beginning may be needed, and in little memory.
  virtual void encode_parts(std::string_view text, std::size_t part_bytes,
                            const std::function<bool(std::span<const std::int32_t>)>& take) const = 0;
  /// Special tokens and ids from vocab_size() on (rows that fill up an embedding) give nothing; invalid UTF-8: U+FFFD.
  virtual std::string decode(std::span<const std::int32_t> tokens) const = 0;
  /// Bytes that a token adds to a text: perhaps part of a character; none for special tokens. `first`: nothing before
  /// it.
  virtual std::string bytes_of(std::int32_t token, bool first) const = 0;
  virtual std::uint32_t vocab_size() const = 0;
  virtual std::int32_t bos() const = 0;  // -1: none
  /// The id of a special or added token by its text; -1 where there is none.
  virtual std::int32_t special(std::string_view text) const = 0;
  /// Bytes of UTF-8 without a token, ascending: encode() drops them outside longer tokens. Few vocabularies lack any.
  virtual std::string dropped_bytes() const = 0;
  /// Stable name of everything that decides the ids: the files' bytes and the settings beside them.
  virtual std::string hash() const = 0;
};

/// What `folder` holds, in transformers' order: tokenizer.json (byte-level BPE, or SentencePiece's pieces),
/// tokenizer.model (SentencePiece, or a tiktoken file as Meta publishes for Llama 3), vocab.json with merges.txt (Qwen2
/// or GPT-2). The tokenizer's class, special tokens and BOS come from there and from the files beside it as
/// docs/model_folder.md says. add_eos_token is not read: a prompt is to be continued. InputError, naming file and
/// field, for a folder without a tokenizer, a damaged one, what transformers refuses, and for whatever would change ids
/// and is not supported. `rows`: of the model's embedding; encode() refuses a text with an added token beyond them.
std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& folder, std::uint32_t rows = ~0u);

/// Tokens one at a time into text, each character as soon as it is complete.
class StreamingDecoder {
 public:
  explicit StreamingDecoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
  std::string push(std::int32_t token);  // the characters that `token` completes
  std::string finish();                  // what is left: U+FFFD for a character that was never finished

 private:
  const Tokenizer& tokenizer_;
  std::string pending_;
  bool first_ = true;
};

}  // namespace tandem
