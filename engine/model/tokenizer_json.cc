// tokenizer.json of Hugging Face, as far as byte-level BPE goes. What is not read and would change ids is refused.
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/common/error.h"
#include "engine/common/json.h"
#include "engine/model/bpe_tokenizer.h"
#include "engine/model/json_fields.h"
#include "engine/model/json_file.h"
#include "engine/model/safetensors.h"
#include "engine/model/word_splitter.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

class TokenizerJson {
 public:
  explicit TokenizerJson(const std::filesystem::path& folder)
      : folder_(folder), path_(folder / "tokenizer.json"), config_(read_tokenizer_config(folder)) {
    const std::string bytes = read_small_file(path_, std::size_t{128} << 20);
    if (nests_deeper(bytes))
      throw_input_error("{}: its brackets are nested deeper than {}.", path_.string(), kJsonNesting);
    json_ = json_or_discarded(bytes);
    if (!json_.is_object()) throw_input_error("{} is not a JSON object, or it is damaged.", path_.string());
    spec_.file = path_.string();
    spec_.hash = fmt::format("{:016x}", content_hash(std::as_bytes(std::span(bytes))));
  }

  BpeSpec read() {
    read_model();
    read_added_tokens();
    read_normalizer();
    read_words();
    read_post_processor();
    check_bos_flag();
    return std::move(spec_);
  }

 private:
  [[noreturn]] void refuse(const std::string& field, const Json& value, const std::string& wanted) const {
    throw_input_error("{}: field '{}' is {}, but {} is needed.", path_.string(), field, json_excerpt(value), wanted);
  }

  static bool absent(const Json& object, const char* name) { return !object.contains(name) || object[name].is_null(); }

  const Json& member(const Json& object, const char* name, const std::string& path, const char* kind,
                     bool right) const {
    if (!right) refuse(path, object.contains(name) ? object[name] : Json(), kind);
    return object[name];
  }

  std::string text_of(const Json& object, const char* name, const std::string& path) const {
    return member(object, name, path, "a text", object.contains(name) && object[name].is_string()).get<std::string>();
  }

  bool flag_of(const Json& object, const char* name, const std::string& path, bool otherwise) const {
    if (absent(object, name)) return otherwise;
    if (!object[name].is_boolean()) refuse(path, object[name], "true or false");
    return object[name].get<bool>();
  }

  std::int32_t id_of(const Json& value, const std::string& path) const {
    if (!value.is_number_integer() || value < 0 || value >= 1 << 22) refuse(path, value, "a token id below 4194304");
    return value.get<std::int32_t>();
  }

  void read_model() {
    if (absent(json_, "model") || !json_["model"].is_object())
      refuse("model", json_.value("model", Json()), "an object");
    const Json& model = json_["model"];
    if (!absent(model, "type") && model["type"] != "BPE") refuse("model.type", model["type"], "\"BPE\"");
    if (flag_of(model, "byte_fallback", "model.byte_fallback", false)) {
      refuse("model.byte_fallback", model["byte_fallback"],
             "false (a SentencePiece model in this form is read from its tokenizer.model)");
    }
    for (const char* name : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"}) {
      if (!absent(model, name) && model[name] != Json("") && model[name] != Json(0))
        refuse(std::string("model.") + name, model[name], "null");
    }
    spec_.drop_unknown = absent(model, "unk_token");
    spec_.whole_words = flag_of(model, "ignore_merges", "model.ignore_merges", false);
    if (absent(model, "vocab") || !model["vocab"].is_object())
      refuse("model.vocab", model.value("vocab", Json()), "an object of tokens and ids");
    if (absent(model, "merges") || !model["merges"].is_array())
      refuse("model.merges", model.value("merges", Json()), "a list of pairs");
    vocabulary_.reserve(model["vocab"].size());
    for (const auto& [text, id] : model["vocab"].items())
      vocabulary_.emplace_back(text, id_of(id, "model.vocab." + text));
    std::vector<std::pair<std::string, std::string>> merges;
    merges.reserve(model["merges"].size());
    for (const Json& merge : model["merges"]) {
      if (merge.is_string()) {  // older files: "a b"
        const std::string& pair = merge.get_ref<const std::string&>();
        const std::size_t space = pair.find(' ');
        if (space == std::string::npos) refuse("model.merges", merge, "two tokens with a space between them");
        merges.emplace_back(pair.substr(0, space), pair.substr(space + 1));
      } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
        merges.emplace_back(merge[0].get<std::string>(), merge[1].get<std::string>());
      } else {
        refuse("model.merges", merge, "a pair of tokens");
      }
    }
    set_vocabulary(spec_, vocabulary_, merges);
  }

  void read_added_tokens() {
    add_listed(spec_, vocabulary_, own_added_tokens());
    const std::size_t own = spec_.added.size();
    add_listed(spec_, vocabulary_, read_listed_tokens(folder_, config_));
    add_to_hash(spec_, std::span(spec_.added).subspan(own));
  }

  ListedTokens own_added_tokens() {
    ListedTokens own;
    own.file = path_.string();
    if (absent(json_, "added_tokens")) return own;
    if (!json_["added_tokens"].is_array()) refuse("added_tokens", json_["added_tokens"], "a list of objects");
    for (const Json& token : json_["added_tokens"]) {
      if (!token.is_object() || absent(token, "id")) refuse("added_tokens", token, "an object with an id");
      AddedToken added;
      added.text = text_of(token, "content", "added_tokens.content");
      added.id = id_of(token["id"], "added_tokens.id");
      added.special = flag_of(token, "special", "added_tokens.special", false);
      added.normalized = flag_of(token, "normalized", "added_tokens.normalized", !added.special);
      refuse_flags(token, fmt::format("{}, added_tokens '{}'", own.file, added.text));
      own.tokens.push_back(std::move(added));
    }
    return own;
  }

  void read_normalizer() {
    if (absent(json_, "normalizer")) return;
    const Json& normalizer = json_["normalizer"];
    if (!normalizer.is_object() || normalizer.value("type", Json()) != "NFC")
      refuse("normalizer", normalizer, "null or {\"type\": \"NFC\"}");
    spec_.composed = true;
  }

  void read_words() {
    if (absent(json_, "pre_tokenizer")) refuse("pre_tokenizer", Json(), "a byte-level one");
    const Json& whole = json_["pre_tokenizer"];
    const bool sequence = whole.is_object() && whole.value("type", Json()) == "Sequence" &&
                          whole.contains("pretokenizers") && whole["pretokenizers"].is_array();
    bool byte_level = false;
    for (const Json& part : sequence ? whole["pretokenizers"] : Json::array({whole})) {
      const Json type = part.is_object() ? part.value("type", Json()) : Json();
      if (byte_level) refuse("pre_tokenizer", part, "nothing after ByteLevel");
      if (type == "Split") {
        read_split(part);
      } else if (type == "Digits") {  // SmolLM2. Digits of Unicode 15 and later are none here (PCRE2 10.42)
        const bool single = flag_of(part, "individual_digits", "pre_tokenizer.individual_digits", false);
        spec_.words.emplace_back(single ? R"(\p{N})" : R"(\p{N}+)");
      } else if (type == "ByteLevel") {
        byte_level = true;
        if (flag_of(part, "add_prefix_space", "pre_tokenizer.add_prefix_space", true))
          refuse("pre_tokenizer.add_prefix_space", part.value("add_prefix_space", Json()), "false");
        if (flag_of(part, "use_regex", "pre_tokenizer.use_regex", true)) spec_.words.emplace_back(kGpt2Words);
      } else {
        refuse("pre_tokenizer", part, "a Split, Digits or a ByteLevel");
      }
    }
    if (!byte_level) refuse("pre_tokenizer", whole, "one that ends with ByteLevel");
  }

  void read_split(const Json& part) {
    if (flag_of(part, "invert", "pre_tokenizer.invert", false)) refuse("pre_tokenizer.invert", part["invert"], "false");
    if (part.value("behavior", Json()) != "Isolated")
      refuse("pre_tokenizer.behavior", part.value("behavior", Json()), "\"Isolated\"");
    const Json pattern = part.value("pattern", Json());
    if (!pattern.is_object() || !pattern.contains("Regex") || !pattern["Regex"].is_string())
      refuse("pre_tokenizer.pattern", pattern, "a Regex");
    spec_.words.push_back(pattern["Regex"].get<std::string>());
  }

  /// Only a token before the sequence matters here: what follows it is for texts that end.
  void read_post_processor() {
    if (absent(json_, "post_processor")) return;
    const Json& whole = json_["post_processor"];
    const bool sequence = whole.is_object() && whole.value("type", Json()) == "Sequence" &&
                          whole.contains("processors") && whole["processors"].is_array();
    bool template_read = false;
    for (const Json& part : sequence ? whole["processors"] : Json::array({whole})) {
      const Json type = part.is_object() ? part.value("type", Json()) : Json();
      if (type == "ByteLevel") continue;
      if (type != "TemplateProcessing") refuse("post_processor", part, "a ByteLevel or a TemplateProcessing");
      if (std::exchange(template_read, true)) refuse("post_processor", whole, "one TemplateProcessing at most");
      read_template(part);
    }
  }

  void read_template(const Json& part) {
    const Json single = part.value("single", Json());
    if (!single.is_array() || single.empty()) refuse("post_processor.single", single, "a list");
    for (const Json& step : single) {
      if (!step.is_object()) refuse("post_processor.single", step, "an object");
      if (!step.contains("SpecialToken")) return;  // the sequence
      if (spec_.add_bos) refuse("post_processor.single", single, "one token before the sequence at most");
      if (!step["SpecialToken"].is_object()) refuse("post_processor.single", step, "a SpecialToken with an id");
      const std::string text = text_of(step["SpecialToken"], "id", "post_processor.single.SpecialToken.id");
      for (const AddedToken& token : spec_.added) {
        if (token.text == text) spec_.bos = token.id;
      }
      if (spec_.bos < 0) refuse("post_processor.single.SpecialToken.id", step, "one of added_tokens");
      const Json listed = part.value("special_tokens", Json());
      const Json ids = listed.is_object() && listed.contains(text) && listed[text].is_object()
                           ? listed[text].value("ids", Json())
                           : Json();
      if (!ids.is_null() && ids != Json::array({spec_.bos})) {
        refuse(fmt::format("post_processor.special_tokens.{}.ids", text), ids,
               fmt::format("the token's id in added_tokens, [{}],", spec_.bos));
      }
      spec_.add_bos = true;
    }
  }

  /// transformers 4 rebuilds the template of a Llama class from this flag, transformers 5 leaves the template.
  void check_bos_flag() const {
    const std::string file = (folder_ / "tokenizer_config.json").string();
    const JsonFields fields(config_, file);
    if (!fields.has("tokenizer_class") || !fields.has("add_bos_token")) return;
    const std::string kind = fields.text("tokenizer_class");
    if (kind != "LlamaTokenizer" && kind != "LlamaTokenizerFast") return;
    if (fields.flag("add_bos_token", false) == spec_.add_bos) return;
    throw_input_error(
        "{}: field 'add_bos_token' is {}, but the post_processor of {} {} a token before the text; versions of "
        "transformers differ in whom they follow. Make both say the same, or remove the field.",
        file, !spec_.add_bos, path_.string(), spec_.add_bos ? "puts" : "does not put");
  }

  std::filesystem::path folder_;
  std::filesystem::path path_;
  Json config_;  // tokenizer_config.json
  Json json_;
  Vocabulary vocabulary_;
  BpeSpec spec_;
};

}  // namespace

BpeSpec read_tokenizer_json(const std::filesystem::path& folder) {
  return TokenizerJson(folder).read();
}

}  // namespace tandem
