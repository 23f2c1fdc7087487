// vocab.json with merges.txt: byte-level BPE as GPT-2 wrote it. What these files leave open (the expression for words,
// the normalization) follows from the tokenizer's class.
#include <nlohmann/json.hpp>

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
using Merges = std::vector<std::pair<std::string, std::string>>;

Merges read_merges(const std::string& text, const std::string& file) {
  Merges merges;
  std::size_t number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    ++number;
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty() || (number == 1 && line.starts_with("#version"))) continue;
    const std::size_t space = line.find(' ');
    if (space == std::string::npos || space == 0 || space + 1 == line.size())
      throw_input_error("{}:{}: a merge is two tokens with a space between them.", file, number);
    merges.emplace_back(line.substr(0, space), line.substr(space + 1));
  }
  return merges;
}

/// Qwen2Tokenizer or GPT2Tokenizer: tokenizer_class of tokenizer_config.json, without it the one of config.json's
/// model.
std::string tokenizer_class(const std::filesystem::path& folder, const JsonFields& fields, const std::string& file) {
  const std::filesystem::path model_file = folder / "config.json";
  const Json model = path_exists(model_file) ? read_json_object(model_file) : Json::object();
  const Json type = model.value("model_type", Json());
  if (!fields.has("tokenizer_class")) {
    if (type == "qwen2" || type == "qwen3") return "Qwen2Tokenizer";
    throw_input_error(
        "{}: field 'tokenizer_class' is missing, and the model_type in {} does not say which it is; with vocab.json "
        "and merges.txt, Qwen2Tokenizer and GPT2Tokenizer are known.",
        file, model_file.string());
  }
  std::string kind = fields.text("tokenizer_class");
  if (kind.ends_with("Fast")) kind.resize(kind.size() - 4);
  if (kind != "Qwen2Tokenizer" && kind != "GPT2Tokenizer") {
    throw_input_error(
        "{}: field 'tokenizer_class' is \"{}\"; with vocab.json and merges.txt, Qwen2Tokenizer and GPT2Tokenizer are "
        "known.",
        file, kind);
  }
  if (kind == "GPT2Tokenizer" && type == "qwen2") {  // transformers takes the model's
    throw_input_error("{}: field 'tokenizer_class' is \"{}\", but the model_type in {} is \"qwen2\".", file, kind,
                      model_file.string());
  }
  return kind;
}

}  // namespace

BpeSpec read_vocab_merges(const std::filesystem::path& folder) {
  BpeSpec spec;
  const std::filesystem::path file = folder / "vocab.json", merges = folder / "merges.txt";
  spec.file = file.string();
  const std::string bytes = read_small_file(file, std::size_t{64} << 20);
  const std::string merges_text = read_small_file(merges, std::size_t{64} << 20);
  const std::filesystem::path config_file = folder / "tokenizer_config.json";
  const Json config = read_tokenizer_config(folder);
  const Json vocab = json_or_discarded(bytes);
  if (!vocab.is_object()) throw_input_error("{} is not a JSON object, or it is damaged.", spec.file);
  Vocabulary vocabulary;
  for (const auto& [text, id] : vocab.items()) {
    if (!id.is_number_integer() || id < 0 || id >= 1 << 22)
      throw_input_error("{}: token '{}' has no id below 4194304.", spec.file, text);
    vocabulary.emplace_back(text, id.get<std::int32_t>());
  }
  set_vocabulary(spec, vocabulary, read_merges(merges_text, merges.string()));
  const JsonFields fields(config, config_file.string());
  spec.composed = tokenizer_class(folder, fields, config_file.string()) == "Qwen2Tokenizer";
  spec.words = {spec.composed ? kQwen2Words : kGpt2Words};
  if (fields.flag("add_prefix_space", false)) fields.bad("add_prefix_space", config["add_prefix_space"], "false");
  spec.add_bos = fields.flag("add_bos_token", false);
  const std::string all = json_text(config);
  spec.hash = fmt::format("{:016x}", content_hash(std::as_bytes(std::span(bytes)),
                                                  content_hash(std::as_bytes(std::span(merges_text)),
                                                               content_hash(std::as_bytes(std::span(all))))));
  const ListedTokens listed = read_listed_tokens(folder, config);
  add_listed(spec, vocabulary, listed);
  if (!listed.says_kinds) add_to_hash(spec, spec.added);
  const std::string bos = named_token(config, "bos_token");
  for (const AddedToken& token : spec.added) {
    if (token.text == bos) spec.bos = token.id;
  }
  return spec;
}

}  // namespace tandem
