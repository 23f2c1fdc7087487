#include "engine/model/added_tokens.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <unordered_map>

#include "engine/common/error.h"
#include "engine/model/json_fields.h"
#include "engine/model/json_file.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

std::string text_of(const Json& token) {
  if (token.is_string()) return token.get<std::string>();
  const bool whole = token.is_object() && token.contains("content") && token["content"].is_string();
  return whole ? token["content"].get<std::string>() : std::string();
}

/// The texts that settings of tokenizer_config.json or special_tokens_map.json name.
void collect_names(const Json& settings, std::set<std::string>& names) {
  for (const char* name : {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"})
    names.insert(named_token(settings, name));
  for (const char* name : {"additional_special_tokens", "extra_special_tokens"}) {
    if (!settings.contains(name) || !settings[name].is_array()) continue;
    for (const Json& token : settings[name]) names.insert(text_of(token));
  }
}

ListedTokens read_decoder(const std::filesystem::path& folder, const Json& decoder) {
  ListedTokens listed;
  listed.file = (folder / "tokenizer_config.json").string();
  if (!decoder.is_object()) throw_input_error("{}: field 'added_tokens_decoder' must be an object.", listed.file);
  for (const auto& [id, token] : decoder.items()) {
    const bool number = !id.empty() && id.size() <= 7 && id.find_first_not_of("0123456789") == std::string::npos;
    if (!number || std::stoi(id) >= kMostTokens || !token.is_object()) {
      throw_input_error("{}: field 'added_tokens_decoder' has the entry '{}', which is no token id with an object.",
                        listed.file, id);
    }
    const std::string where = fmt::format("{}, added_tokens_decoder, {}", listed.file, id);
    refuse_flags(token, where);
    const JsonFields fields(token, where);
    const bool special = fields.flag("special", false);
    listed.tokens.push_back({fields.text("content"), std::stoi(id), special, fields.flag("normalized", !special)});
  }
  return listed;
}

ListedTokens read_added_tokens_json(const std::filesystem::path& file, const std::set<std::string>& names) {
  ListedTokens listed;
  listed.file = file.string();
  listed.says_kinds = false;
  const Json json = read_json_object(file);  // items() of a temporary would not live long enough
  for (const auto& [text, id] : json.items()) {
    if (!id.is_number_integer() || id < 0 || id >= kMostTokens)
      throw_input_error("{}: token '{}' has no id below {}.", listed.file, text, kMostTokens);
    const bool special = names.contains(text);
    listed.tokens.push_back({text, id.get<std::int32_t>(), special, !special});
  }
  return listed;
}

}  // namespace

nlohmann::json read_tokenizer_config(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "tokenizer_config.json";
  return path_exists(file) ? read_json_object(file) : Json::object();
}

std::string named_token(const Json& config, const char* name) {
  return config.contains(name) ? text_of(config[name]) : std::string();
}

ListedTokens read_listed_tokens(const std::filesystem::path& folder, const Json& config) {
  ListedTokens listed;
  std::set<std::string> names;
  collect_names(config, names);
  if (config.contains("added_tokens_decoder") && !config["added_tokens_decoder"].is_null()) {
    listed = read_decoder(folder, config["added_tokens_decoder"]);
  } else {
    const std::filesystem::path map = folder / "special_tokens_map.json", file = folder / "added_tokens.json";
    if (path_exists(map)) collect_names(read_json_object(map), names);
    if (path_exists(file)) listed = read_added_tokens_json(file, names);
  }
  names.erase("");
  listed.named.assign(names.begin(), names.end());
  if (listed.file.empty()) listed.file = (folder / "tokenizer_config.json").string();
  std::sort(listed.tokens.begin(), listed.tokens.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
  return listed;
}

void refuse_flags(const Json& token, const std::string& where) {
  const JsonFields fields(token, where);
  for (const char* name : {"lstrip", "rstrip", "single_word"}) {
    if (fields.flag(name, false)) fields.bad(name, token[name], "false");
  }
}

void add_listed_tokens(const ListedTokens& listed, const KnownVocabulary& vocabulary, std::vector<AddedToken>& added) {
  auto next = static_cast<std::int32_t>(vocabulary.size);
  std::unordered_map<std::string, AddedToken> by_text;
  for (const AddedToken& token : added) {
    next = std::max(next, token.id + 1);
    by_text.emplace(token.text, token);
  }
  const auto add = [&](const AddedToken& token) {
    next = std::max(next, token.id + 1);
    by_text.emplace(token.text, token);
    added.push_back(token);
  };
  for (const AddedToken& token : listed.tokens) {
    if (token.text.empty()) throw_input_error("{}: the added token {} has no text.", listed.file, token.id);
    const auto same_text = by_text.find(token.text);
    const bool listed_before = same_text != by_text.end();
    const std::int32_t known = listed_before ? same_text->second.id : vocabulary.id_of(token.text);
    if (known >= 0 && known != token.id) {
      throw_input_error("{}: the added token '{}' has the id {}, but {} has it under {}. Make both say the same.",
                        listed.file, token.text, token.id, vocabulary.file, known);
    }
    if (listed_before) {
      if (listed.says_kinds && same_text->second != token) {
        throw_input_error(
            "{}: the added token '{}' has other values of 'special' or 'normalized' than in {}. Make both say the "
            "same.",
            listed.file, token.text, vocabulary.file);
      }
      continue;
    }
    if (known < 0 && token.id < next) {
      throw_input_error("{}: the added token '{}' has the id {}, which {} gives to another token, or to none.",
                        listed.file, token.text, token.id, vocabulary.file);
    }
    if (known < 0 && token.id > next) {
      throw_input_error(
          "{}: the added token '{}' has the id {}, but {} is the next free one, which transformers would give it. List "
          "the tokens without a gap.",
          listed.file, token.text, token.id, next);
    }
    add(token);
  }
  for (const std::string& name : listed.named) {
    if (by_text.contains(name)) continue;
    const std::int32_t id = vocabulary.id_of(name);
    if (id < 0) {
      throw_input_error(
          "The settings beside {} name the special token '{}', but no file gives it an id. Add it to "
          "added_tokens_decoder in tokenizer_config.json with the id that the model was trained with, or remove the "
          "name.",
          vocabulary.file, name);
    }
    add({name, id});
  }
}

TokenFinder::TokenFinder(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)), by_first_byte_(256) {
  std::sort(tokens_.begin(), tokens_.end(), [](const AddedToken& a, const AddedToken& b) {
    return a.text.size() != b.text.size() ? a.text.size() > b.text.size() : a.id < b.id;
  });
  for (std::size_t i = 0; i < tokens_.size(); ++i)
    by_first_byte_[static_cast<unsigned char>(tokens_[i].text.at(0))].push_back(i);
}

const AddedToken* TokenFinder::at(std::string_view text, bool with_special) const {
  for (const std::size_t i : by_first_byte_[static_cast<unsigned char>(text[0])]) {
    const AddedToken& token = tokens_[i];
    if ((with_special || !token.special) && text.starts_with(token.text)) return &token;
  }
  return nullptr;
}

bool TokenFinder::cut(std::string_view text, bool with_special, const std::function<bool(std::string_view)>& stretch,
                      const std::function<void(const AddedToken&)>& token) const {
  std::size_t done = 0;
  for (std::size_t i = 0; i < text.size();) {
    const AddedToken* found = at(text.substr(i), with_special);
    if (found == nullptr) {
      ++i;
      continue;
    }
    if (i > done && !stretch(text.substr(done, i - done))) return false;
    token(*found);
    done = i += found->text.size();
  }
  return done == text.size() || stretch(text.substr(done));
}

}  // namespace tandem
