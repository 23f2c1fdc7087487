// Tokens that a folder's files add to a vocabulary: found in a text before it is cut into words.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

/// Ids are below it: one from a broken file would make a table of that size.
inline constexpr std::int32_t kMostTokens = 1 << 22;

struct AddedToken {
  std::string text;
  std::int32_t id = 0;
  bool special = true;      // false: matched in every text (Qwen's <tool_call>)
  bool normalized = false;  // true: sought in normalized text, after the others
  bool operator==(const AddedToken&) const = default;
};

/// What one file lists.
struct ListedTokens {
  std::string file;
  std::vector<AddedToken> tokens;
  bool says_kinds = true;          // false: texts and ids alone (added_tokens.json), so another file may know better
  std::vector<std::string> named;  // special tokens that settings (bos_token, ...) name, wherever they have their ids
};

/// tokenizer_config.json of `folder`; an empty object where there is none.
nlohmann::json read_tokenizer_config(const std::filesystem::path& folder);

/// The text of a field such as bos_token: a text, or an object with its content. Empty where there is none.
std::string named_token(const nlohmann::json& config, const char* name);

/// What the files beside a tokenizer's own list, as transformers reads them: added_tokens_decoder of `config` (the
/// folder's tokenizer_config.json), and only without that field added_tokens.json, whose tokens are special where a
/// setting names them, special_tokens_map.json's included. By id. InputError for damaged entries and for unsupported
/// flags.
ListedTokens read_listed_tokens(const std::filesystem::path& folder, const nlohmann::json& config);

/// A flag that lets a token swallow spaces or depend on its neighbours: InputError where one is set.
void refuse_flags(const nlohmann::json& token, const std::string& where);

/// The vocabulary that tokens are added to.
struct KnownVocabulary {
  std::string file;
  std::size_t size = 0;
  std::function<std::int32_t(const std::string& text)> id_of;  // -1: it has no such text
};

/// Appends to `added` what it lacks of `listed`. InputError where the two, or the vocabulary, disagree about a token's
/// id or kind, and for a gap in the ids or a named token without one: the references then number it themselves.
void add_listed_tokens(const ListedTokens& listed, const KnownVocabulary& vocabulary, std::vector<AddedToken>& added);

/// Finds added tokens in a text: of two that begin at the same place the longer one.
class TokenFinder {
 public:
  explicit TokenFinder(std::vector<AddedToken> tokens);

  /// Cuts `text` at its tokens, special ones only where `with_special`, as long as `stretch` returns true; empty
  /// stretches are left out. False where `stretch` returned that.
  bool cut(std::string_view text, bool with_special, const std::function<bool(std::string_view)>& stretch,
           const std::function<void(const AddedToken&)>& token) const;

 private:
  const AddedToken* at(std::string_view text, bool with_special) const;

  std::vector<AddedToken> tokens_;                       // the longest first
  std::vector<std::vector<std::size_t>> by_first_byte_;  // 256
};

}  // namespace tandem
