// tokenizer.json of Hugging Face, as far as byte-level BPE goes. What is not read and would change ids is refused.
#include <nlohmann/json.hpp>

#include "engine/common/error.h"
#include "engine/model/bpe_tokenizer.h"
#include "engine/model/json_file.h"
#include "engine/model/safetensors.h"
#include "engine/model/word_splitter.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

class TokenizerJson {
 public:
  explicit TokenizerJson(const std::filesystem::path& folder) : path_(folder / "tokenizer.json") {
    const std::string bytes = read_small_file(path_, std::size_t{128} << 20);
    if (nests_deeper(bytes, 32)) throw_input_error("{}: its brackets are nested deeper than 32.", path_.string());
    json_ = Json::parse(bytes, nullptr, false);
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
    return std::move(spec_);
  }

 private:
  [[noreturn]] void refuse(const std::string& field, const Json& value, const std::string& wanted) const {
    std::string shown = value.dump(-1, ' ', false, Json::error_handler_t::replace);
    if (shown.size() > 60) shown = shown.substr(0, 60) + "...";
    throw_input_error("{}: field '{}' is {}, but {} is needed.", path_.string(), field, shown, wanted);
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
    spec_.whole_words = flag_of(model, "ignore_merges", "model.ignore_merges", false);
    if (absent(model, "vocab") || !model["vocab"].is_object())
      refuse("model.vocab", model.value("vocab", Json()), "an object of tokens and ids");
    if (absent(model, "merges") || !model["merges"].is_array())
      refuse("model.merges", model.value("merges", Json()), "a list of pairs");
    std::vector<std::pair<std::string, std::int32_t>> vocabulary;
    vocabulary.reserve(model["vocab"].size());
    for (const auto& [text, id] : model["vocab"].items())
      vocabulary.emplace_back(text, id_of(id, "model.vocab." + text));
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
    set_vocabulary(spec_, vocabulary, merges);
  }

  void read_added_tokens() {
    if (absent(json_, "added_tokens")) return;
    if (!json_["added_tokens"].is_array()) refuse("added_tokens", json_["added_tokens"], "a list of objects");
    for (const Json& token : json_["added_tokens"]) {
      if (!token.is_object() || absent(token, "id")) refuse("added_tokens", token, "an object with an id");
      AddedToken added;
      added.text = text_of(token, "content", "added_tokens.content");
      added.id = id_of(token["id"], "added_tokens.id");
      added.special = flag_of(token, "special", "added_tokens.special", false);
      for (const char* name : {"lstrip", "rstrip", "single_word"}) {
        if (flag_of(token, name, std::string("added_tokens.") + name, false))
          refuse(fmt::format("added_tokens '{}'.{}", added.text, name), token[name], "false");
      }
      spec_.added.push_back(std::move(added));
    }
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
      } else if (type == "ByteLevel") {
        byte_level = true;
        if (flag_of(part, "add_prefix_space", "pre_tokenizer.add_prefix_space", true))
          refuse("pre_tokenizer.add_prefix_space", part.value("add_prefix_space", Json()), "false");
        if (flag_of(part, "use_regex", "pre_tokenizer.use_regex", true)) spec_.words.emplace_back(kGpt2Words);
      } else {
        refuse("pre_tokenizer", part, "a Split or a ByteLevel");
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
    for (const Json& part : sequence ? whole["processors"] : Json::array({whole})) {
      const Json type = part.is_object() ? part.value("type", Json()) : Json();
      if (type == "ByteLevel") continue;
      if (type != "TemplateProcessing") refuse("post_processor", part, "a ByteLevel or a TemplateProcessing");
      const Json single = part.value("single", Json());
      if (!single.is_array() || single.empty() || !single[0].is_object())
        refuse("post_processor.single", single, "a list");
      if (!single[0].contains("SpecialToken")) continue;
      if (!single[0]["SpecialToken"].is_object())
        refuse("post_processor.single", single[0], "a SpecialToken with an id");
      const std::string text = text_of(single[0]["SpecialToken"], "id", "post_processor.single.SpecialToken.id");
      for (const AddedToken& token : spec_.added) {
        if (token.text == text) spec_.bos = token.id;
      }
      if (spec_.bos < 0) refuse("post_processor.single.SpecialToken.id", single[0], "one of added_tokens");
      spec_.add_bos = true;
    }
  }

  std::filesystem::path path_;
  Json json_;
  BpeSpec spec_;
};

}  // namespace

BpeSpec read_tokenizer_json(const std::filesystem::path& folder) {
  return TokenizerJson(folder).read();
}

}  // namespace tandem
