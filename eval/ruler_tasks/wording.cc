#include "eval/ruler_tasks/wording.h"

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
                     const std::vector<const char*>& places) {
  const json& value = member(object, file, name);
  if (!value.is_string()) throw_input_error("The field '{}' of '{}' must be a string.", name, file);
  std::string text = value.get<std::string>();
  for (const char* place : places)
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

using Facts = std::vector<std::pair<const char*, std::vector<const char*>>>;  // names, and what each must contain

std::vector<RulerWording::Relation> relations_of(const json& qa, const std::string& file, const char* name,
                                                 const Facts& facts) {
  const json& value = member(qa, file, name);
  if (!value.is_array() || value.empty())
    throw_input_error("The field '{}' of '{}' must be a list of one or more objects.", name, file);
  std::vector<RulerWording::Relation> relations;
  for (const json& one : value) {
    RulerWording::Relation& relation = relations.emplace_back();
    for (const auto& [fact, places] : facts) relation.facts.push_back(sentence(one, file, fact, places));
    relation.question = sentence(one, file, "question", {"{a}"});
  }
  return relations;
}

/// Sections of wording.json, their sentences, and what each of these must contain.
const std::vector<std::pair<const char*, Facts>>& sections() {
  static const std::vector<std::pair<const char*, Facts>> all = {
      {"niah",
       {{"intro", {"{type}"}},
        {"needle", {"{type}", "{key}", "{value}"}},
        {"question_one", {"{type}", "{key}"}},
        {"question_values", {"{type}", "{key}"}},
        {"question_keys", {"{type}", "{keys}"}},
        {"keys_join", {}}}},
      {"vt",
       {{"intro", {}},
        {"first", {"{name}", "{value}"}},
        {"next", {"{name}", "{previous}"}},
        {"question", {"{value}"}}}},
      {"cwe", {{"intro", {}}, {"item_join", {}}, {"question", {"{k}"}}}},
      {"fwe", {{"intro", {}}, {"question", {}}}},
      {"qa", {{"intro", {}}, {"document", {"{i}", "{text}"}}, {"question", {"{question}"}}}}};
  return all;
}

}  // namespace

const std::string& RulerWording::operator[](std::string_view place) const {
  const auto found = sentences.find(place);
  TANDEM_CHECK(found != sentences.end(), "wording.json has no sentence '{}'", place);
  return found->second;
}

RulerWording load_ruler_wording(const std::string& wording_file, const std::string& words_file) {
  const std::string wording_bytes = read_file(wording_file), words_bytes = read_file(words_file);
  const json document = parse(wording_file, wording_bytes), words = parse(words_file, words_bytes);
  RulerWording result;
  for (const auto& [section, sentences] : sections())
    for (const auto& [name, places] : sentences)
      result.sentences[fmt::format("{}/{}", section, name)] =
          sentence(member(document, wording_file, section), wording_file, name, places);
  for (const char* type : {"numbers", "words", "uuids"})
    result.sentences[fmt::format("niah/types/{}", type)] =
        sentence(member(document.at("niah"), wording_file, "types"), wording_file, type, {});
  const json& qa = document.at("qa");
  result.relations = relations_of(qa, wording_file, "relations", {{"fact", {"{a}", "{b}"}}});
  result.two_hops = relations_of(qa, wording_file, "two_hops", {{"first", {"{a}", "{b}"}}, {"second", {"{b}", "{c}"}}});
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
  static const RulerWording wording = load_ruler_wording(data_path("eval/ruler_tasks/wording.json").string(),
                                                         data_path("eval/ruler_tasks/words.json").string());
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
