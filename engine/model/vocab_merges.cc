// vocab.json with merges.txt: byte-level BPE as GPT-2 wrote it. What these files leave open (the expression for words,
// the normalization) follows from the tokenizer's class.
#include <ranges>

#include "engine/model/bpe_tokenizer.h"
#include "engine/model/json_fields.h"
#include "engine/model/safetensors.h"
#include "engine/model/tokenizer_settings.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

Merges read_merges(const std::string& text, const std::string& file) {
  Merges merges;
  std::size_t number = 0;
  for (const auto part : std::views::split(text, '\n')) {
    std::string line(part.begin(), part.end());
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

}  // namespace

BpeSpec read_vocab_merges(const std::filesystem::path& folder) {
  BpeSpec spec;
  const std::filesystem::path file = folder / "vocab.json", merges = folder / "merges.txt";
  spec.file = file.string();
  const std::string bytes = read_file(file);
  const std::string merges_text = read_file(merges);
  const Json vocab = json_object_of(bytes, file);
  Vocabulary vocabulary;
  for (const auto& [text, id] : vocab.items()) {
    if (!id.is_number_integer() || id < 0 || id >= kMostTokens)
      throw_input_error("{}: token '{}' has no id below {}.", spec.file, text, kMostTokens);
    vocabulary.emplace_back(text, id.get<std::int32_t>());
  }
  set_vocabulary(spec, vocabulary, read_merges(merges_text, merges.string()));
  TokenizerSettings settings = read_tokenizer_settings(folder, std::nullopt);
  apply_class(spec, settings);
  const Json config = path_exists(settings.file) ? read_json_object(settings.file) : Json::object();
  spec.hash = hash_digits(bytes, text_hash(merges_text, text_hash(json_text(config))));
  settings.add_to(spec.added, known_vocabulary(vocabulary));
  if (path_exists(folder / "added_tokens.json")) add_to_hash(spec, spec.added.list());
  spec.bos = spec.added.id_of(settings.bos());
  spec.add_bos = settings.add_bos.value_or(false) && spec.bos >= 0;
  return spec;
}

}  // namespace tandem
