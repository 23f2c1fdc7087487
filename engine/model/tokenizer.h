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
  virtual std::vector<std::int32_t> encode(std::string_view text, bool add_bos) const = 0;
  /// Control tokens give nothing. Ids must be below vocab_size().
  virtual std::string decode(std::span<const std::int32_t> tokens) const = 0;
  virtual std::uint32_t vocab_size() const = 0;
  virtual std::int32_t bos() const = 0;  // -1: none
  /// Stable name of the tokenizer's file contents.
  virtual std::string hash() const = 0;
};

/// InputError for a folder without a supported tokenizer (tokenizer.model of SentencePiece) or with a damaged one.
std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& folder);

}  // namespace tandem
