// Byte pair encoding of one word: a table of tokens (byte strings) and of merges.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tandem {

/// Of two neighbouring tokens into one. Lower ranks come first; among equal ones the leftmost.
struct Merge {
  std::int32_t left = 0, right = 0, result = 0;
};

class BytePairs {
 public:
  /// `tokens[id]`: the token's bytes, empty where there is no such id. `merges` in the order of their ranks.
  /// `whole_words`: a word that is a token is that token, whatever the merges would make of it (Llama 3).
  /// `drop_unknown`: bytes without a token are left out of words before anything is merged, as the tokenizers library
  /// does where no unknown token is named (SmolLM2's vocabulary lacks some control characters). One that is printable
  /// ASCII, a space or a newline, or any where they are not dropped, is an InputError naming `file`.
  BytePairs(std::vector<std::string> tokens, const std::vector<Merge>& merges, bool whole_words, bool drop_unknown,
            const std::string& file);
  BytePairs(BytePairs&&) = default;  // the maps refer to the tokens' bytes: no copies
  BytePairs& operator=(BytePairs&&) = default;

  void encode(std::string_view word, std::vector<std::int32_t>& out) const;  // appends the ids of one word

  const std::vector<std::string>& tokens() const { return tokens_; }
  std::int32_t find(std::string_view bytes) const;  // -1 where no token has these bytes

 private:
  struct Slot {
    std::uint64_t pair = kEmpty;
    std::uint32_t rank = 0;
    std::int32_t result = 0;
  };
  static constexpr std::uint64_t kEmpty = ~std::uint64_t{0};
  static std::uint64_t key(std::int32_t left, std::int32_t right) {
    return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
  }
  std::size_t place_of(std::uint64_t pair) const;  // where it is, or would be
  const Slot* merge_of(std::int32_t left, std::int32_t right) const;
  void merge_short(std::string_view word, std::vector<std::int32_t>& out) const;
  void merge_long(std::string_view word, std::vector<std::int32_t>& out) const;
  void merge(std::string_view word, std::vector<std::int32_t>& out) const;

  std::vector<std::string> tokens_;
  std::unordered_map<std::string_view, std::int32_t> all_ids_;
  std::unordered_map<std::string_view, std::int32_t> ids_;  // of tokens that a word can be at once
  std::int32_t byte_ids_[256];                              // -1: no token
  bool drops_ = false;                                      // one of them is -1
  std::vector<Slot> slots_;                                 // open addressing, a power of two
};

}  // namespace tandem
