// vocab.json with merges.txt: byte-level BPE as GPT-2 wrote it. What these files leave open (the expression for words,
// the normalization, added tokens) follows from the tokenizer_class in tokenizer_config.json.
#include <nlohmann/json.hpp>

#include "engine/common/error.h"
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

void read_added(const Json& config, const std::string& file, BpeSpec& spec) {
  if (!config.contains("added_tokens_decoder") || config["added_tokens_decoder"].is_null()) return;
  const Json& added = config["added_tokens_decoder"];
  if (!added.is_object()) throw_input_error("{}: field 'added_tokens_decoder' must be an object.", file);
  for (const auto& [id, token] : added.items()) {
    const bool number = !id.empty() && id.size() <= 7 && id.find_first_not_of("0123456789") == std::string::npos;
    if (!number || !token.is_object())
      throw_input_error("{}: field 'added_tokens_decoder' has the entry '{}', which is no token id with an object.",
                        file, id);
    const JsonFields fields(token, fmt::format("{}, added_tokens_decoder, {}", file, id));
    for (const char* name : {"lstrip", "rstrip", "single_word"}) {
      if (fields.flag(name, false)) fields.bad(name, token[name], "false");
    }
    spec.added.push_back({fields.text("content"), std::stoi(id), fields.flag("special", false)});
  }
}

}  // namespace

BpeSpec read_vocab_merges(const std::filesystem::path& folder) {
  BpeSpec spec;
  const std::filesystem::path file = folder / "vocab.json", merges = folder / "merges.txt";
  spec.file = file.string();
  const std::string bytes = read_small_file(file, std::size_t{64} << 20);
  const std::string merges_text = read_small_file(merges, std::size_t{64} << 20);
  const std::filesystem::path config_file = folder / "tokenizer_config.json";
  const Json config = path_exists(config_file) ? read_json_object(config_file) : Json::object();
  const Json vocab = Json::parse(bytes, nullptr, false);
  if (!vocab.is_object()) throw_input_error("{} is not a JSON object, or it is damaged.", spec.file);
  std::vector<std::pair<std::string, std::int32_t>> vocabulary;
  for (const auto& [text, id] : vocab.items()) {
    if (!id.is_number_integer() || id < 0 || id >= 1 << 22)
      throw_input_error("{}: token '{}' has no id below 4194304.", spec.file, text);
    vocabulary.emplace_back(text, id.get<std::int32_t>());
  }
  set_vocabulary(spec, vocabulary, read_merges(merges_text, merges.string()));
  const JsonFields fields(config, config_file.string());
  std::string kind = fields.has("tokenizer_class") ? fields.text("tokenizer_class") : "GPT2Tokenizer";
  if (kind.ends_with("Fast")) kind.resize(kind.size() - 4);
  if (kind == "Qwen2Tokenizer") {
    spec.words = {kQwen2Words};
    spec.composed = true;
  } else if (kind == "GPT2Tokenizer") {
    spec.words = {kGpt2Words};
    if (fields.flag("add_prefix_space", false)) fields.bad("add_prefix_space", config["add_prefix_space"], "false");
  } else {
    throw_input_error(
        "{}: field 'tokenizer_class' is \"{}\"; with vocab.json and merges.txt, Qwen2Tokenizer and GPT2Tokenizer are "
        "known.",
        config_file.string(), kind);
  }
  read_added(config, config_file.string(), spec);
  if (fields.has("bos_token")) {
    const Json& bos = config["bos_token"];
    const std::string text = bos.is_object() && bos.contains("content") && bos["content"].is_string()
                                 ? bos["content"].get<std::string>()
                                 : fields.text("bos_token");
    for (const AddedToken& token : spec.added) {
      if (token.text == text) spec.bos = token.id;
    }
  }
  spec.add_bos = fields.flag("add_bos_token", false);
  const std::string all = config.dump(-1, ' ', false, Json::error_handler_t::replace);
  spec.hash = fmt::format("{:016x}", content_hash(std::as_bytes(std::span(bytes)),
                                                  content_hash(std::as_bytes(std::span(merges_text)),
                                                               content_hash(std::as_bytes(std::span(all))))));
  return spec;
}

}  // namespace tandem
