// Tokens that a folder's files add to a vocabulary, and their places in a text, which is cut at them before its words
// are: as the tokenizers library does it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/model/tokenizer.h"

namespace tandem {

/// Ids are below it: one from a broken file would make a table of that size.
inline constexpr std::int32_t kMostTokens = 1 << 22;

struct AddedToken {
  std::string text;
  std::int32_t id = 0;
  bool special = true;       // false: matched in every text (Qwen's <tool_call>)
  bool normalized = false;   // true: sought in normalized text, after the others
  bool strips_left = false;  // takes the white space before it, or behind it, along
  bool strips_right = false;
  bool single_word = false;  // only where no letter or digit touches it
  bool operator==(const AddedToken&) const = default;
};

/// Whether two tokens are equal in all but their ids, which a file may state wrongly.
bool same_but_id(const AddedToken& a, const AddedToken& b);

/// Texts with their ids, and pairs that are merged by rank, as Hugging Face's files have them.
using Vocabulary = std::vector<std::pair<std::string, std::int32_t>>;
using Merges = std::vector<std::pair<std::string, std::string>>;

/// The vocabulary that tokens are added to.
struct KnownVocabulary {
  std::size_t size = 0;                                        // number of its tokens
  std::function<std::int32_t(const std::string& text)> id_of;  // -1: it has no such text
};

/// A token's id, text and flags, for a tokenizer's hash.
std::string hash_text(const AddedToken& token);

class AddedVocabulary {
 public:
  /// Adds tokens that come together. Each gets its text's id, else the next free one, whatever its `id` says. A later
  /// token replaces the flags of an earlier one with the same text; one that was special stays special.
  void add(std::span<const AddedToken> tokens, const KnownVocabulary& known);

  /// By id, with the flags that the tokens were last given.
  const std::map<std::int32_t, AddedToken>& tokens() const { return tokens_; }
  std::vector<AddedToken> list() const;             // the same in a list
  std::int32_t id_of(std::string_view text) const;  // -1 where no added token has this text
  /// What is sought in texts, of equal texts the first first: `normalized` as it was when the token was first added.
  std::vector<AddedToken> sought() const;
  /// Whether the token counts as text where special tokens do, and gives none when it is decoded.
  bool is_special(const AddedToken& token) const { return special_texts_.contains(token.text); }

 private:
  std::map<std::int32_t, AddedToken> tokens_;
  std::unordered_map<std::string, std::int32_t> ids_;
  std::vector<AddedToken> special_, others_;  // as first added
  std::set<std::string> special_texts_;
};

/// All that decides a tokenizer's ids beside its vocabulary.
struct TokenizerSpec {
  std::string file;  // for errors
  AddedVocabulary added;
  std::string (*normalize)(std::string_view) = nullptr;  // of what lies between tokens; nullptr: not at all
  std::int32_t bos = -1;
  bool add_bos = false;
  std::string hash;
};

/// A tokenizer but for its vocabulary, which encodes what lies between added tokens.
class AddedTokenizer : public Tokenizer {
 public:
  std::vector<std::int32_t> encode(std::string_view text, bool add_bos, Specials specials) const override;
  void encode_parts(std::string_view text, std::size_t part_bytes,
                    const std::function<bool(std::span<const std::int32_t>)>& take) const override;
  std::uint32_t vocab_size() const override { return vocab_; }
  std::int32_t bos() const override { return spec_.bos; }
  std::int32_t special(std::string_view text) const override { return spec_.added.id_of(text); }
  std::string hash() const override { return spec_.hash; }

 protected:
  AddedTokenizer(TokenizerSpec spec, std::uint32_t rows);  // `rows`: of the model's embedding
  /// `tokens`: number of the vocabulary's. InputError where the model has no row for the token that texts begin with.
  void set_size(std::size_t tokens);

  using Done = std::function<bool(std::size_t bytes)>;
  /// Appends the ids of a stretch to `out` part by part, of at least `part_bytes` where the vocabulary allows no
  /// smaller ones, as long as `done`, which gets a part's bytes of text, returns true. False where it did not.
  virtual bool encode_stretch(std::string_view stretch, bool at_start, std::size_t part_bytes,
                              std::vector<std::int32_t>& out, const Done& done) const = 0;
  const AddedToken* added(std::int32_t token) const;  // nullptr: no added token has this id
  /// What an added token adds to a text; nothing for special ones and for ids that none has.
  std::string added_text(std::int32_t token) const;
  bool is_special(const AddedToken& token) const { return spec_.added.is_special(token); }

 private:
  /// Tokens of one kind.
  class Pass {
   public:
    explicit Pass(std::vector<AddedToken> tokens);
    /// Cuts `text` (valid UTF-8) at them, of two that begin at the same place at the longer one, as long as `stretch`,
    /// which gets what lies between them unless it is empty, returns true. `at_start`: nothing comes before the
    /// stretch. Special tokens count as text unless `with_special`. False where `stretch` returned that.
    bool cut(std::string_view text, bool with_special,
             const std::function<bool(std::string_view, bool at_start)>& stretch,
             const std::function<void(const AddedToken&)>& token) const;

   private:
    const AddedToken* at(std::string_view text) const;

    std::vector<AddedToken> tokens_;                       // the longest first
    std::vector<std::vector<std::size_t>> by_first_byte_;  // 256
  };
  bool encode(std::string_view text, bool with_special, std::size_t part_bytes, std::vector<std::int32_t>& out,
              const Done& done) const;

  TokenizerSpec spec_;
  std::uint32_t rows_;
  Pass raw_, normalized_;
  std::uint32_t vocab_ = 0;
};

}  // namespace tandem
