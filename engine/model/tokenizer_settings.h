// What the files beside a vocabulary say about its tokenizer: its class and special tokens (docs/model_folder.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "engine/model/added_tokens.h"

namespace tandem {

/// How transformers builds the tokenizer: `backend` takes tokenizer.json (or tokenizer.model) as it is, the others take
/// vocabulary and merges from there and have rules of their own for the rest.
enum class TokenizerClass { backend, llama, qwen2, gpt2 };

inline constexpr std::size_t kMostOfTokenizerJson = std::size_t{128} << 20;  // bytes

/// Whether the bytes of a tokenizer.json describe a byte-level tokenizer.
bool is_byte_level(std::string_view tokenizer_json);

/// What tokenizer.json says that decides how the other files are read.
struct TokenizerJsonFacts {
  bool byte_level = false;
  std::vector<AddedToken> added;
};

struct TokenizerSettings {
  struct Named {
    std::string field;  // bos_token, image_token, ...
    AddedToken token;
  };

  std::string file;  // tokenizer_config.json, for messages
  bool any = false;  // false: no such file is there, as in a folder that Meta published, which transformers cannot read
  TokenizerClass kind = TokenizerClass::backend;
  std::optional<bool> add_bos, add_prefix_space, legacy;
  std::map<std::int32_t, AddedToken> listed;     // added_tokens_decoder, or else what the files with ids list
  std::vector<Named> named;                      // in transformers' order
  std::set<std::string> unset;                   // fields that are null: the class's own name does not count
  std::optional<std::vector<AddedToken>> extra;  // extra_special_tokens; nothing where the field is missing
  bool extra_from_map = false;                   // as special_tokens_map.json's additional_special_tokens
  bool extra_has_objects = false;

  /// Names a special token where no file does.
  void name_by_default(const std::string& field, const std::string& text);
  void name_by_class();     // the same for those that `kind` has, if any
  std::string bos() const;  // the text of bos_token; empty where there is none
  /// Adds what the settings list and name, in transformers' order. An id in `listed` decides the order alone.
  void add_to(AddedVocabulary& added, const KnownVocabulary& known) const;
};

/// Reads tokenizer_config.json, special_tokens_map.json, added_tokens.json and config.json of `folder`; each may be
/// missing. InputError naming file and field where transformers refuses them, and for a class that is not supported.
TokenizerSettings read_tokenizer_settings(const std::filesystem::path& folder,
                                          const std::optional<TokenizerJsonFacts>& tokenizer_json);

/// A token as an object of tokenizer_config.json or tokenizer.json. `where`: file and field, for messages.
AddedToken read_added_token(const nlohmann::ordered_json& token, const std::string& where);

}  // namespace tandem
