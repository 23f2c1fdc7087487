// tokenizer.json of Hugging Face, as far as byte pair encoding goes: byte-level, or of pieces as SentencePiece's. What
// is not read and would change ids is refused.
#include <utility>

#include "engine/common/read_file.h"
#include "engine/model/bpe_tokenizer.h"
#include "engine/model/json_fields.h"
#include "engine/model/safetensors.h"
#include "engine/model/sentencepiece_model.h"
#include "engine/model/sentencepiece_tokenizer.h"
#include "engine/model/tokenizer_settings.h"
#include "engine/model/utf8.h"
#include "engine/model/word_splitter.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

class TokenizerJson {
 public:
  explicit TokenizerJson(const std::filesystem::path& folder) : folder_(folder), path_(folder / "tokenizer.json") {
    const std::string bytes = read_file(path_, kMostOfTokenizerJson);
    json_ = json_object_of(bytes, path_);
    spec_.file = path_.string();
    spec_.hash = hash_digits(bytes);
    facts_.byte_level = is_byte_level(bytes);
  }

  std::unique_ptr<Tokenizer> read(std::uint32_t rows) {
    read_own_added_tokens();
    settings_ = read_tokenizer_settings(folder_, facts_);
    read_model();
    if (has_pieces()) return make_sentencepiece_tokenizer(read_pieces(), rows);
    set_vocabulary(spec_, vocabulary_, merges_);
    if (settings_.kind == TokenizerClass::backend) {
      read_normalizer();
      read_words();
    } else {
      apply_class(spec_, settings_);
    }
    add_tokens();
    read_post_processor();
    return make_bpe_tokenizer(std::move(spec_), rows);
  }

 private:
  [[noreturn]] void refuse(const std::string& field, const Json& value, const std::string& wanted) const {
    throw_input_error("{}: field '{}' is {}, but {} is needed.", path_.string(), field, json_excerpt(value), wanted);
  }

  /// A member of an object; null where there is none.
  static const Json& at(const Json& object, const std::string& name) {
    static const Json kNone;
    return object.is_object() && object.contains(name) ? object[name] : kNone;
  }

  std::string text_of(const Json& object, const char* name, const std::string& path) const {
    if (!at(object, name).is_string()) refuse(path, at(object, name), "a text");
    return object[name].get<std::string>();
  }

  bool flag_of(const Json& object, const char* name, const std::string& path, bool otherwise) const {
    const Json& flag = at(object, name);
    if (!flag.is_null() && !flag.is_boolean()) refuse(path, flag, "true or false");
    return flag.is_null() ? otherwise : flag.get<bool>();
  }

  /// The members of a Sequence, which `name` lists; anything else is one part.
  static Json parts_of(const Json& whole, const char* name) {
    return at(whole, "type") == "Sequence" && at(whole, name).is_array() ? whole[name] : Json::array({whole});
  }

  std::int32_t id_of(const Json& value, const std::string& path) const {
    if (!value.is_number_integer() || value < 0 || value >= kMostTokens)
      refuse(path, value, fmt::format("a token id below {}", kMostTokens));
    return value.get<std::int32_t>();
  }

  void read_model() {
    const Json& model = at(json_, "model");
    if (!model.is_object()) refuse("model", model, "an object");
    const Json& type = at(model, "type");
    if (!type.is_null() && type != "BPE") refuse("model.type", type, "\"BPE\"");
    for (const char* name : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"}) {
      const Json& option = at(model, name);
      if (!option.is_null() && option.dump() != R"("")" && option != 0)
        refuse(std::string("model.") + name, option, "null");
    }
    spec_.drop_unknown = at(model, "unk_token").is_null();
    spec_.whole_words = flag_of(model, "ignore_merges", "model.ignore_merges", false);
    const Json &vocab = at(model, "vocab"), &merges = at(model, "merges");
    if (!vocab.is_object()) refuse("model.vocab", vocab, "an object of tokens and ids");
    if (!merges.is_array()) refuse("model.merges", merges, "a list of pairs");
    vocabulary_.reserve(vocab.size());
    for (const auto& [text, id] : vocab.items()) vocabulary_.emplace_back(text, id_of(id, "model.vocab." + text));
    merges_.reserve(merges.size());
    for (const Json& merge : merges) {
      if (merge.is_string()) {  // older files: "a b"
        const std::string& pair = merge.get_ref<const std::string&>();
        const std::size_t space = pair.find(' ');
        if (space == std::string::npos) refuse("model.merges", merge, "two tokens with a space between them");
        merges_.emplace_back(pair.substr(0, space), pair.substr(space + 1));
      } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
        merges_.emplace_back(merge[0].get<std::string>(), merge[1].get<std::string>());
      } else {
        refuse("model.merges", merge, "a pair of tokens");
      }
    }
  }

  /// A SentencePiece model in this form: characters and, for those that have no token, bytes.
  bool has_pieces() const {
    return settings_.kind == TokenizerClass::llama ||
           (settings_.kind == TokenizerClass::backend && at(json_["model"], "byte_fallback") == true);
  }

  SentencePieceSpec read_pieces() {
    SentencePieceSpec pieces;
    const Json& model = json_["model"];
    bool prefix = true;
    if (settings_.kind == TokenizerClass::llama) {  // whatever the file says about spaces
      prefix = settings_.add_prefix_space.value_or(true);
      pieces.prefix = {.first_only = !settings_.legacy.value_or(false), .not_before_space = true};
      settings_.name_by_class();
    } else {
      if (spec_.whole_words) refuse("model.ignore_merges", model["ignore_merges"], "false beside byte_fallback");
      prefix = at(json_, "normalizer").is_null() ? read_metaspace(pieces) : read_space_marks(pieces);
    }
    const std::string unknown =
        at(model, "unk_token").is_null() ? "<unk>" : text_of(model, "unk_token", "model.unk_token");
    pieces.model = sentencepiece_of(vocabulary_, merges_, unknown, prefix, spec_.file);
    add_tokens();
    read_post_processor();
    spec_.normalize = pieces.normalize;
    static_cast<TokenizerSpec&>(pieces) = std::move(spec_);
    pieces.hash = hash_digits(
        fmt::format("{}:{:d}{:d}{:d}", pieces.hash, prefix, pieces.prefix.first_only, pieces.prefix.not_before_space));
    return pieces;
  }

  /// Whether there are spaces in front at all; `pieces` gets the rule.
  bool read_metaspace(SentencePieceSpec& pieces) const {
    const Json& part = at(json_, "pre_tokenizer");
    if (at(part, "type") != "Metaspace")
      refuse("pre_tokenizer", part, "a Metaspace beside byte_fallback without a normalizer");
    if (at(part, "replacement") != kSpaceMark) refuse("pre_tokenizer.replacement", at(part, "replacement"), "U+2581");
    if (flag_of(part, "split", "pre_tokenizer.split", true)) refuse("pre_tokenizer.split", at(part, "split"), "false");
    const Json scheme = part.value("prepend_scheme", Json("always"));
    if (scheme != "always" && scheme != "first" && scheme != "never")
      refuse("pre_tokenizer.prepend_scheme", scheme, "\"always\", \"first\" or \"never\"");
    pieces.prefix = {.first_only = scheme == "first", .not_before_space = true};
    return scheme != "never";
  }

  /// The same with a normalizer, as older files have it: Replace of spaces, perhaps behind a Prepend.
  bool read_space_marks(SentencePieceSpec& pieces) const {
    const Json replace = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", kSpaceMark}};
    const Json prepend = {{"type", "Prepend"}, {"prepend", kSpaceMark}};
    const Json &whole = json_["normalizer"], &parts = at(whole, "normalizers");
    const bool prefix = parts == Json::array({prepend, replace});
    if (!prefix && whole != replace && parts != Json::array({replace}))
      refuse("normalizer", whole,
             "a Replace of spaces by U+2581, alone or behind a Prepend of it, beside byte_fallback");
    if (!at(json_, "pre_tokenizer").is_null())
      refuse("pre_tokenizer", json_["pre_tokenizer"], "null beside such a normalizer");
    pieces.normalize = prefix ? mark_spaces_and_prepend : mark_spaces;
    return prefix;
  }

  void read_own_added_tokens() {
    if (!json_.contains("added_tokens")) return;
    if (!json_["added_tokens"].is_array()) refuse("added_tokens", json_["added_tokens"], "a list of objects");
    for (const Json& token : json_["added_tokens"]) {
      if (!token.is_object() || at(token, "id").is_null()) refuse("added_tokens", token, "an object with an id");
      AddedToken added = read_added_token(nlohmann::ordered_json(token), path_.string() + ": field 'added_tokens'");
      added.id = id_of(token["id"], "added_tokens.id");
      facts_.added.push_back(std::move(added));
    }
  }

  /// Its own tokens first, where the class takes them from here at all.
  void add_tokens() {
    const KnownVocabulary known = known_vocabulary(vocabulary_);
    if (settings_.kind == TokenizerClass::backend) spec_.added.add(facts_.added, known);
    const std::map<std::int32_t, AddedToken> own = spec_.added.tokens();
    settings_.add_to(spec_.added, known);
    std::vector<AddedToken> changed;
    for (const auto& [id, token] : spec_.added.tokens()) {
      if (const auto before = own.find(id); before == own.end() || before->second != token) changed.push_back(token);
    }
    add_to_hash(spec_, changed);
  }

  void read_normalizer() {
    const Json& normalizer = at(json_, "normalizer");
    if (normalizer.is_null()) return;
    if (at(normalizer, "type") != "NFC") refuse("normalizer", normalizer, "null or {\"type\": \"NFC\"}");
    spec_.normalize = compose_utf8;
  }

  void read_words() {
    const Json& whole = at(json_, "pre_tokenizer");
    if (whole.is_null()) refuse("pre_tokenizer", whole, "a byte-level one");
    bool byte_level = false;
    for (const Json& part : parts_of(whole, "pretokenizers")) {
      const Json& type = at(part, "type");
      if (byte_level) refuse("pre_tokenizer", part, "nothing after ByteLevel");
      if (type == "Split") {
        read_split(part);
      } else if (type == "Digits") {  // SmolLM2. Digits of Unicode 15 and later are none here (PCRE2 10.42)
        const bool single = flag_of(part, "individual_digits", "pre_tokenizer.individual_digits", false);
        spec_.words.emplace_back(single ? R"(\p{N})" : R"(\p{N}+)");
      } else if (type == "ByteLevel") {
        byte_level = true;
        if (flag_of(part, "add_prefix_space", "pre_tokenizer.add_prefix_space", true))
          refuse("pre_tokenizer.add_prefix_space", at(part, "add_prefix_space"), "false");
        if (flag_of(part, "use_regex", "pre_tokenizer.use_regex", true)) spec_.words.emplace_back(kGpt2Words);
      } else {
        refuse("pre_tokenizer", part, "a Split, Digits or a ByteLevel");
      }
    }
    if (!byte_level) refuse("pre_tokenizer", whole, "one that ends with ByteLevel");
  }

  void read_split(const Json& part) {
    if (flag_of(part, "invert", "pre_tokenizer.invert", false)) refuse("pre_tokenizer.invert", part["invert"], "false");
    if (at(part, "behavior") != "Isolated") refuse("pre_tokenizer.behavior", at(part, "behavior"), "\"Isolated\"");
    const Json& pattern = at(part, "pattern");
    if (!at(pattern, "Regex").is_string()) refuse("pre_tokenizer.pattern", pattern, "a Regex");
    spec_.words.push_back(pattern["Regex"].get<std::string>());
  }

  /// Only a token before the sequence matters here: what follows it is for texts that end.
  void read_post_processor() {
    const Json& whole = at(json_, "post_processor");
    if (whole.is_null()) return;
    bool template_read = false;
    for (const Json& part : parts_of(whole, "processors")) {
      const Json& type = at(part, "type");
      if (type == "ByteLevel") continue;
      if (type != "TemplateProcessing") refuse("post_processor", part, "a ByteLevel or a TemplateProcessing");
      if (std::exchange(template_read, true)) refuse("post_processor", whole, "one TemplateProcessing at most");
      read_template(part);
    }
  }

  void read_template(const Json& part) {
    const Json& single = at(part, "single");
    if (!single.is_array() || single.empty()) refuse("post_processor.single", single, "a list");
    for (const Json& step : single) {
      if (!step.is_object()) refuse("post_processor.single", step, "an object");
      if (!step.contains("SpecialToken")) return;  // the sequence
      if (spec_.add_bos) refuse("post_processor.single", single, "one token before the sequence at most");
      if (!step["SpecialToken"].is_object()) refuse("post_processor.single", step, "a SpecialToken with an id");
      const std::string text = text_of(step["SpecialToken"], "id", "post_processor.single.SpecialToken.id");
      const Json& ids = at(at(at(part, "special_tokens"), text), "ids");
      const std::string where = fmt::format("post_processor.special_tokens.{}.ids", text);
      if (!ids.is_array() || ids.size() != 1) refuse(where, ids, "a list of one token id");
      spec_.bos = id_of(ids[0], where);
      spec_.add_bos = true;
    }
  }

  std::filesystem::path folder_;
  std::filesystem::path path_;
  Json json_;
  TokenizerJsonFacts facts_;
  TokenizerSettings settings_;
  Vocabulary vocabulary_;
  Merges merges_;
  BpeSpec spec_;
};

}  // namespace

std::unique_ptr<Tokenizer> load_tokenizer_json(const std::filesystem::path& folder, std::uint32_t rows) {
  return TokenizerJson(folder).read(rows);
}

}  // namespace tandem
