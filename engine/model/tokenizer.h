// Text to token ids and back, exactly as the model's own tokenizer.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  /// `add_bos`: the text begins a sequence, so bos() comes first, unless the folder's tokenizer_config.json says
  /// add_bos_token false. Text is text: "<s>" inside it is not the control token. Invalid UTF-8 becomes U+FFFD.
  virtual std::vector<std::int32_t> encode(std::string_view text, bool add_bos) const = 0;
  /// Control tokens give nothing. Ids must be below vocab_size().
  virtual std::string decode(std::span<const std::int32_t> tokens) const = 0;
  virtual std::uint32_t vocab_size() const = 0;
  virtual std::int32_t bos() const = 0;  // -1: none
  /// Stable name of everything that decides the ids: the file's bytes and the settings beside it.
  virtual std::string hash() const = 0;
};

/// Reads tokenizer.model, and from tokenizer_config.json, where there is one, add_bos_token and add_prefix_space (which
/// overrides the model's own rule). add_eos_token is not read: a prompt is to be continued.
/// InputError for a folder without a supported tokenizer (tokenizer.model of SentencePiece) or with a damaged one.
std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& folder);

}  // namespace tandem
