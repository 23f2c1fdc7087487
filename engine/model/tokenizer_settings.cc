#include "engine/model/tokenizer_settings.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/model/json_fields.h"

namespace tandem {
namespace {

using OrderedJson = nlohmann::ordered_json;
using Fields = FieldsOf<OrderedJson>;

constexpr const char* kStandard[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                     "pad_token", "cls_token", "mask_token"};
constexpr const char *kExtra = "extra_special_tokens", *kAdditional = "additional_special_tokens",
                     *kSpecific = "model_specific_special_tokens", *kDecoder = "added_tokens_decoder";
// Marks an object as a token: in files, and (the second) where special_tokens_map.json made it one.
constexpr const char *kType = "__type", *kFromMap = "__from_map";

bool is_standard(const std::string& field) {
  return std::ranges::find(kStandard, field) != std::end(kStandard);
}

bool is_token(const OrderedJson& value) {
  return value.is_string() || (value.is_object() && value.value(kType, OrderedJson()) == "AddedToken");
}

/// A token named in a field: a text, or an object that says it is a token.
AddedToken named_token(const OrderedJson& value, const std::string& where) {
  if (value.is_string()) return AddedToken{.text = value.get<std::string>()};
  if (!is_token(value))
    throw_input_error(
        "{} is {}, but a text is needed, or an object with \"__type\": \"AddedToken\": transformers refuses others.",
        where, json_excerpt(value));
  return read_added_token(value, where);
}

OrderedJson read_ordered(const std::filesystem::path& file) {
  if (!path_exists(file)) return OrderedJson::object();
  OrderedJson json = parse_ordered_json(read_file(file), file.string());
  if (!json.is_object()) throw_input_error("{} is not a JSON object.", file.string());
  return json;
}

TokenizerClass class_named(std::string name, const std::string& file) {
  if (name.ends_with("Fast")) name.resize(name.size() - 4);
  if (name == "LlamaTokenizer") return TokenizerClass::llama;
  if (name == "Qwen2Tokenizer") return TokenizerClass::qwen2;
  if (name == "GPT2Tokenizer") return TokenizerClass::gpt2;
  if (name == "TokenizersBackend" || name == "PreTrainedTokenizer") return TokenizerClass::backend;
  throw_input_error(
      "{}: field 'tokenizer_class' is \"{}\"; LlamaTokenizer, Qwen2Tokenizer, GPT2Tokenizer, TokenizersBackend and "
      "PreTrainedTokenizerFast are known.",
      file, name);
}

/// The class that transformers takes: the model's own beats the file's for qwen2, the other way round for qwen3; a
/// byte-level tokenizer.json is never LlamaTokenizer's.
TokenizerClass choose_class(const std::filesystem::path& folder, const std::string& own, const std::string& file,
                            bool byte_level) {
  const std::filesystem::path model_file = folder / "config.json";
  const OrderedJson json = read_ordered(model_file);
  const Fields model(json, model_file.string());
  const std::string type = model.text_or("model_type", ""), models = model.text_or("tokenizer_class", "");
  const std::string& declared = own.empty() ? models : own;
  const std::string& where = own.empty() ? model_file.string() : file;
  if (byte_level && type != "qwen2" && declared.starts_with("LlamaTokenizer")) return TokenizerClass::backend;
  const bool qwen = type == "qwen2" || type == "qwen3";
  if (declared.empty()) return qwen ? TokenizerClass::qwen2 : TokenizerClass::backend;
  return type == "qwen2" ? TokenizerClass::qwen2 : class_named(declared, where);
}

class Reader {
 public:
  Reader(const std::filesystem::path& folder, const std::optional<TokenizerJsonFacts>& tokenizer_json)
      : folder_(folder), tokenizer_json_(tokenizer_json) {
    settings_.file = (folder / "tokenizer_config.json").string();
    fields_ = read_ordered(settings_.file);
  }

  TokenizerSettings read() {
    settings_.any = path_exists(settings_.file) || path_exists(folder_ / "config.json");
    const Fields fields(fields_, settings_.file);
    settings_.kind = choose_class(folder_, fields.text_or("tokenizer_class", ""), settings_.file,
                                  tokenizer_json_.has_value() && tokenizer_json_->byte_level);
    if (tokenizer_json_.has_value()) fields_.erase("add_bos_token");  // its post_processor decides
    settings_.add_bos = fields.flag("add_bos_token");
    settings_.add_prefix_space = fields.flag("add_prefix_space");
    settings_.legacy = fields.flag("legacy");
    separate_specific_tokens();
    if (fields_.contains(kDecoder)) {
      read_decoder(fields_[kDecoder]);
    } else {
      read_special_tokens_map(folder_ / "special_tokens_map.json");
      read_added_tokens_json(folder_ / "added_tokens.json");
      if (tokenizer_json_.has_value())
        for (const AddedToken& token : tokenizer_json_->added) settings_.listed[token.id] = token;
    }
    read_names();
    read_extra();
    return std::move(settings_);
  }

 private:
  std::string field(const std::string& name) const { return fmt::format("{}: field '{}'", settings_.file, name); }

  [[noreturn]] void refuse_extra(const char* name) const {
    Fields(fields_, settings_.file).bad(name, "a list of tokens, or an object of names and tokens,");
  }

  /// An object of names and tokens; an empty one where the field is missing.
  OrderedJson& specific_tokens() {
    OrderedJson& tokens = fields_.emplace(kSpecific, OrderedJson::object()).first.value();
    if (!tokens.is_object()) throw_input_error("{} must be an object.", field(kSpecific));
    return tokens;
  }

  static bool holds_something(const OrderedJson& object, const char* name) {
    return object.contains(name) && !object[name].is_null() && !object[name].empty();
  }

  /// image_token and its like, and extra_special_tokens where it is an object, into one object of names and tokens.
  void separate_specific_tokens() {
    if (fields_.contains(kAdditional) && !holds_something(fields_, kExtra)) {
      fields_[kExtra] = fields_[kAdditional];
      fields_.erase(kAdditional);
    }
    OrderedJson specific = OrderedJson::object();
    for (const auto& [name, value] : fields_.items())
      if (!is_standard(name) && name.ends_with("_token") && value.is_string()) specific[name] = value;
    for (const auto& [name, value] : specific.items()) fields_.erase(name);
    if (fields_.contains(kExtra) && fields_[kExtra].is_object()) {
      specific.update(fields_[kExtra]);
      fields_.erase(kExtra);
    }
    if (!specific.empty()) fields_[kSpecific] = specific;
  }

  void read_decoder(const OrderedJson& decoder) {
    if (!decoder.is_object()) throw_input_error("{} must be an object.", field(kDecoder));
    for (const auto& [id, token] : decoder.items()) {
      const bool number = !id.empty() && id.size() <= 7 && id.find_first_not_of("0123456789") == std::string::npos;
      if (!number || std::stoi(id) >= kMostTokens || !token.is_object())
        throw_input_error("{} has the entry '{}', which is no token id with an object.", field(kDecoder), id);
      list(read_added_token(token, fmt::format("{}, {}", field(kDecoder), id)), std::stoi(id));
    }
  }

  void list(AddedToken token, std::int32_t id) {
    token.id = id;
    settings_.listed[id] = std::move(token);
  }

  /// Counts only where added_tokens_decoder is missing, and then before tokenizer_config.json.
  void read_special_tokens_map(const std::filesystem::path& file) {
    const OrderedJson map = read_ordered(file);
    settings_.any = settings_.any || path_exists(file);
    for (const auto& [name, value] : map.items()) {
      const std::string where = fmt::format("{}: field '{}'", file.string(), name);
      if (name == kExtra && value.is_array()) {
        OrderedJson all = holds_something(fields_, kExtra) ? fields_[kExtra] : OrderedJson::array();
        if (!all.is_array()) refuse_extra(kExtra);
        for (const OrderedJson& token : value) {
          if (token.is_object() && token.contains("special"))
            throw_input_error("{} has a token with 'special', which transformers refuses there.", where);
          OrderedJson converted = token.is_object() ? from_map(token, where) : token;
          if (std::find(all.begin(), all.end(), converted) == all.end()) all.push_back(std::move(converted));
        }
        fields_[kExtra] = all;
      } else if (name == kExtra && value.is_object()) {
        specific_tokens().update(value);
        fields_.erase(kExtra);
      } else {
        fields_[name] = value.is_object() ? from_map(value, where) : value;
      }
    }
  }

  static OrderedJson from_map(OrderedJson token, const std::string& where) {
    token["special"] = true;
    read_added_token(token, where);
    token[kType] = "AddedToken";
    token[kFromMap] = true;
    return token;
  }

  void read_added_tokens_json(const std::filesystem::path& file) {
    if (!path_exists(file)) return;
    settings_.any = true;
    const auto text_of = [](const OrderedJson& token) {
      const bool from_map = token.is_object() && token.contains(kFromMap);
      const OrderedJson text = from_map ? token.value("content", OrderedJson()) : token;
      return text.is_string() ? text.get<std::string>() : std::string();
    };
    std::set<std::string> special;
    for (const char* name : kStandard) special.insert(text_of(fields_.value(name, OrderedJson())));
    if (fields_.contains(kExtra) && fields_[kExtra].is_array())
      for (const OrderedJson& token : fields_[kExtra]) special.insert(text_of(token));
    const OrderedJson json = read_ordered(file);  // items() of a temporary would not live long enough
    for (const auto& [text, id] : json.items()) {
      if (!id.is_number_integer() || id < 0 || id >= kMostTokens)
        throw_input_error("{}: token '{}' has no id below {}.", file.string(), text, kMostTokens);
      AddedToken token = AddedToken{.text = text};
      token.special = special.contains(text);
      token.normalized = !token.special;
      list(token, id.get<std::int32_t>());
    }
  }

  void read_names() {
    for (const char* name : kStandard) {
      if (!fields_.contains(name)) continue;
      if (fields_[name].is_null()) {
        settings_.unset.insert(name);
        continue;
      }
      AddedToken token = named_token(fields_[name], field(name));
      for (const auto& [id, listed] : settings_.listed)
        if (listed.text == token.text) token = listed;
      settings_.named.push_back({name, token});
    }
    OrderedJson specific = OrderedJson::object();
    for (const auto& [name, value] : fields_.items())
      if (!is_standard(name) && name.ends_with("_token") && is_token(value)) specific[name] = value;
    specific.update(specific_tokens());
    for (const auto& [name, value] : specific.items())
      settings_.named.push_back({name, named_token(value, field(name))});
  }

  void read_extra() {
    const char* name = fields_.contains(kExtra) ? kExtra : kAdditional;
    if (!fields_.contains(name)) return;
    const OrderedJson& value = fields_[name];
    std::vector<AddedToken>& all = settings_.extra.emplace();
    if (value.is_null()) return;
    if (!value.is_array()) refuse_extra(name);
    for (const OrderedJson& token : value) {
      all.push_back(named_token(token, field(name)));
      settings_.extra_has_objects = settings_.extra_has_objects || token.is_object();
    }
    settings_.extra_from_map = name == kAdditional;
  }

  std::filesystem::path folder_;
  const std::optional<TokenizerJsonFacts>& tokenizer_json_;
  OrderedJson fields_;  // of tokenizer_config.json, special_tokens_map.json's merged in
  TokenizerSettings settings_;
};

}  // namespace

TokenizerSettings read_tokenizer_settings(const std::filesystem::path& folder,
                                          const std::optional<TokenizerJsonFacts>& tokenizer_json) {
  return Reader(folder, tokenizer_json).read();
}

bool is_byte_level(std::string_view tokenizer_json) {
  return tokenizer_json.find("\"ByteLevel\"") != std::string_view::npos;
}

AddedToken read_added_token(const OrderedJson& token, const std::string& where) {
  AddedToken added;
  added.special = false;
  bool has_text = false, has_normalized = false;
  const std::pair<const char*, bool AddedToken::*> flags[] = {{"special", &AddedToken::special},
                                                              {"normalized", &AddedToken::normalized},
                                                              {"lstrip", &AddedToken::strips_left},
                                                              {"rstrip", &AddedToken::strips_right},
                                                              {"single_word", &AddedToken::single_word}};
  for (const auto& [name, value] : token.items()) {
    if (name == kType || name == kFromMap || name == "id") continue;
    if (name == "content" && value.is_string()) {
      added.text = value.get<std::string>();
      has_text = true;
      continue;
    }
    const auto* found = std::ranges::find_if(flags, [&](const auto& f) { return f.first == name; });
    if (found == std::end(flags) || !value.is_boolean())
      throw_input_error(
          "{}: '{}' is {}, but a token has a text as content, and true or false as special, normalized, lstrip, rstrip "
          "and single_word.",
          where, name, json_excerpt(value));
    added.*(found->second) = value.get<bool>();
    has_normalized = has_normalized || name == "normalized";
  }
  if (!has_text) throw_input_error("{}: the token has no 'content'.", where);
  if (!has_normalized) added.normalized = !added.special;
  return added;
}

void TokenizerSettings::name_by_default(const std::string& field, const std::string& text) {
  const auto has_field = [&](const Named& name) { return name.field == field; };
  if (unset.contains(field) || std::ranges::any_of(named, has_field)) return;
  const auto place = [](const std::string& name) { return std::ranges::find(kStandard, name) - std::begin(kStandard); };
  const auto behind = std::ranges::find_if(named, [&](const Named& name) { return place(name.field) > place(field); });
  named.insert(behind, {field, AddedToken{.text = text}});
}

void TokenizerSettings::name_by_class() {
  constexpr const char* kEnd = "<|endoftext|>";
  static const std::map<TokenizerClass, std::vector<std::pair<const char*, const char*>>> kOwnNames = {
      {TokenizerClass::llama, {{"unk_token", "<unk>"}, {"bos_token", "<s>"}, {"eos_token", "</s>"}}},
      {TokenizerClass::qwen2, {{"unk_token", kEnd}, {"eos_token", kEnd}, {"pad_token", kEnd}}},
      {TokenizerClass::gpt2, {{"unk_token", kEnd}, {"bos_token", kEnd}, {"eos_token", kEnd}}}};
  if (const auto names = kOwnNames.find(kind); names != kOwnNames.end())
    for (const auto& [field, text] : names->second) name_by_default(field, text);
}

std::string TokenizerSettings::bos() const {
  for (const Named& name : named)
    if (name.field == "bos_token") return name.token.text;
  return {};
}

void TokenizerSettings::add_to(AddedVocabulary& added, const KnownVocabulary& known) const {
  std::vector<AddedToken> more;
  std::set<std::string> seen;
  for (const auto& [id, token] : added.tokens()) seen.insert(token.text);
  for (const auto& [id, token] : listed) {
    const std::int32_t there = added.id_of(token.text);
    if (there >= 0 && same_but_id(added.tokens().at(there), token)) continue;
    more.push_back(token);
    seen.insert(token.text);
  }
  std::vector<AddedToken> others;
  others.reserve(named.size());
  for (const Named& name : named) others.push_back(name.token);
  if (extra.has_value()) others.insert(others.end(), extra->begin(), extra->end());
  const auto with_ids = static_cast<std::ptrdiff_t>(more.size());
  for (const AddedToken& token : others) {
    const auto repeats = [&](const AddedToken& other) { return same_but_id(other, token); };
    if (!seen.contains(token.text) && std::none_of(more.begin() + with_ids, more.end(), repeats)) more.push_back(token);
  }
  for (AddedToken& token : more) {
    const auto names_it = [&](const Named& name) { return name.token.text == token.text; };
    token.special = token.special || std::ranges::any_of(named, names_it);
  }
  added.add(more, known);
  if (kind != TokenizerClass::qwen2) return;
  std::vector<AddedToken> plain;  // that class adds its special tokens once more, without flags
  plain.reserve(others.size());
  for (const AddedToken& token : others) plain.push_back({.text = token.text});
  added.add(plain, known);
}

}  // namespace tandem
