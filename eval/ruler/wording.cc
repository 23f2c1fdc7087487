#include "eval/ruler/wording.h"

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "engine/common/error.h"
#include "engine/common/json.h"
#include "engine/common/paths.h"
#include "engine/common/read_file.h"

namespace tandem::eval {
namespace {

using nlohmann::json;

json parse(const std::string& file, const std::string& bytes) {
  json document = json_or_discarded(bytes);
  if (!document.is_object()) throw_input_error("The file '{}' is not a JSON object.", file);
  return document;
}

const json& member(const json& object, const std::string& file, const char* name) {
  if (!object.is_object() || !object.contains(name)) throw_input_error("The file '{}' has no field '{}'.", file, name);
  return object.at(name);
}

/// A sentence that must contain each of `places`, because without them no question could be answered.
std::string sentence(const json& object, const std::string& file, const char* name,
                     std::initializer_list<std::string_view> places) {
  const json& value = member(object, file, name);
  if (!value.is_string()) throw_input_error("The field '{}' of '{}' must be a string.", name, file);
  std::string text = value.get<std::string>();
  for (const std::string_view place : places)
    if (text.find(place) == std::string::npos)
      throw_input_error("The field '{}' of '{}' must contain {}, but is \"{}\".", name, file, place, text);
  return text;
}

std::vector<std::string> list(const json& object, const std::string& file, const char* name) {
  const json& value = member(object, file, name);
  std::vector<std::string> result;
  if (value.is_array())
    for (const json& item : value)
      if (item.is_string() && !item.get_ref<const std::string&>().empty()) result.push_back(item.get<std::string>());
  if (!value.is_array() || result.empty() || result.size() != value.size())
    throw_input_error("The field '{}' of '{}' must be a list of one or more strings.", name, file);
  return result;
}

/// The objects of a list, each with sentences of these names.
const json& objects(const json& object, const std::string& file, const char* name) {
  const json& value = member(object, file, name);
  if (!value.is_array() || value.empty())
    throw_input_error("The field '{}' of '{}' must be a list of one or more objects.", name, file);
  return value;
}

NeedleWording needle_wording(const json& niah, const std::string& file) {
  NeedleWording w;
  w.intro = sentence(niah, file, "intro", {"{type}"});
  w.needle = sentence(niah, file, "needle", {"{type}", "{key}", "{value}"});
  w.question_one = sentence(niah, file, "question_one", {"{type}", "{key}"});
  w.question_values = sentence(niah, file, "question_values", {"{type}", "{key}"});
  w.question_keys = sentence(niah, file, "question_keys", {"{type}", "{keys}"});
  w.keys_join = sentence(niah, file, "keys_join", {});
  const json& types = member(niah, file, "types");
  for (const char* name : {"numbers", "words", "uuids"}) w.types.emplace_back(name, sentence(types, file, name, {}));
  return w;
}

ChainWording chain_wording(const json& vt, const std::string& file) {
  ChainWording w;
  w.intro = sentence(vt, file, "intro", {});
  w.first = sentence(vt, file, "first", {"{name}", "{value}"});
  w.next = sentence(vt, file, "next", {"{name}", "{previous}"});
  w.question = sentence(vt, file, "question", {"{value}"});
  return w;
}

WordCountWording count_wording(const json& document, const std::string& file) {
  const json& cwe = member(document, file, "cwe");
  const json& fwe = member(document, file, "fwe");
  WordCountWording w;
  w.common_intro = sentence(cwe, file, "intro", {});
  w.common_join = sentence(cwe, file, "item_join", {});
  w.common_question = sentence(cwe, file, "question", {"{k}"});
  w.frequent_intro = sentence(fwe, file, "intro", {});
  w.frequent_question = sentence(fwe, file, "question", {});
  return w;
}

FactWording fact_wording(const json& qa, const std::string& file) {
  FactWording w;
  w.intro = sentence(qa, file, "intro", {});
  w.document = sentence(qa, file, "document", {"{i}", "{text}"});
  w.question = sentence(qa, file, "question", {"{question}"});
  for (const json& r : objects(qa, file, "relations"))
    w.relations.push_back({sentence(r, file, "fact", {"{a}", "{b}"}), sentence(r, file, "question", {"{a}"})});
  for (const json& r : objects(qa, file, "two_hops")) {
    w.two_hops.push_back({sentence(r, file, "first", {"{a}", "{b}"}), sentence(r, file, "second", {"{b}", "{c}"}),
                          sentence(r, file, "question", {"{a}"})});
  }
  return w;
}

}  // namespace

RulerWording load_ruler_wording(const std::string& wording_file, const std::string& words_file) {
  const std::string wording_bytes = read_file(wording_file), words_bytes = read_file(words_file);
  const json document = parse(wording_file, wording_bytes), words = parse(words_file, words_bytes);
  RulerWording result;
  result.needles = needle_wording(member(document, wording_file, "niah"), wording_file);
  result.chains = chain_wording(member(document, wording_file, "vt"), wording_file);
  result.counts = count_wording(document, wording_file);
  result.facts = fact_wording(member(document, wording_file, "qa"), wording_file);
  result.noise = list(document, wording_file, "noise");
  result.prose = list(document, wording_file, "prose");
  result.nouns = list(words, words_file, "noun");
  result.adjectives = list(words, words_file, "adj");
  result.verbs = list(words, words_file, "verb");
  if (result.nouns.size() * result.adjectives.size() < 1000)
    throw_input_error("The file '{}' gives only {} keys (adjectives times nouns); 1000 or more are needed.", words_file,
                      result.nouns.size() * result.adjectives.size());
  result.wording_hash = fmt::format("{:016x}", fnv1a64(wording_bytes));
  result.words_hash = fmt::format("{:016x}", fnv1a64(words_bytes));
  return result;
}

const RulerWording& ruler_wording() {
  static const RulerWording wording =
      load_ruler_wording(data_path("eval/ruler/wording.json").string(), data_path("eval/ruler/words.json").string());
  return wording;
}

std::string fill(std::string_view text, const std::vector<std::pair<std::string_view, std::string_view>>& values) {
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    bool replaced = false;
    for (const auto& [name, value] : values) {
      if (text[at] != '{' || text.substr(at + 1, name.size()) != name || text.substr(at + 1 + name.size(), 1) != "}")
        continue;
      result += value;
      at += name.size() + 2;
      replaced = true;
      break;
    }
    if (!replaced) result += text[at++];
  }
  return result;
}

std::string random_key(const RulerWording& wording, Random& random) {
  std::string key = wording.adjectives[random.below(wording.adjectives.size())];
  return key + "-" + wording.nouns[random.below(wording.nouns.size())];
}

std::string random_number(Random& random) {
  return std::to_string(1000000 + random.below(9000000));
}

std::string random_uuid(Random& random) {
  const std::uint64_t high = (random.next() & ~0xf000ull) | 0x4000ull;                        // version 4
  const std::uint64_t low = (random.next() & 0x3fffffffffffffffull) | 0x8000000000000000ull;  // variant 10
  return fmt::format("{:08x}-{:04x}-{:04x}-{:04x}-{:012x}", high >> 32, (high >> 16) & 0xffff, high & 0xffff, low >> 48,
                     low & 0xffffffffffffull);
}

std::string random_prose(const RulerWording& wording, Random& random) {
  const std::string& text = wording.prose[random.below(wording.prose.size())];
  const std::pair<std::string_view, const std::vector<std::string>*> kinds[] = {
      {"{noun}", &wording.nouns}, {"{adj}", &wording.adjectives}, {"{verb}", &wording.verbs}};
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t before = at;
    for (const auto& [place, words] : kinds) {
      if (text.compare(at, place.size(), place) != 0) continue;
      result += (*words)[random.below(words->size())];
      at += place.size();
      break;
    }
    if (at == before) result += text[at++];
  }
  return result;
}

}  // namespace tandem::eval
