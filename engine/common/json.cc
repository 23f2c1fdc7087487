#include "engine/common/json.h"

#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "engine/common/error.h"
#include "engine/common/interrupt.h"

namespace tandem {
namespace {

constexpr std::size_t kExcerpt = 60;                      // bytes
constexpr std::size_t kQuickText = std::size_t{1} << 20;  // bytes; a text up to here is parsed without asking for ^C

template <class Json>
Json parse(std::string_view text, const std::string& where) {
  if (nests_deeper(text)) throw_input_error("{}: its brackets are nested more than {} deep.", where, kJsonNesting);
  // The library takes a zero byte for the end of the text, and would not see what follows it.
  if (const std::size_t zero = text.find('\0'); zero != text.npos)
    throw_input_error("{}: not valid JSON from byte {} of {} on.", where, zero + 1, text.size());
  std::vector<std::set<std::string>> names;
  std::string repeated;
  const auto watch = [&](int, typename Json::parse_event_t event, Json& parsed) {
    if (text.size() > kQuickText) stop_if_interrupted();
    if (event == Json::parse_event_t::object_start) names.emplace_back();
    if (event == Json::parse_event_t::object_end) names.pop_back();
    if (event == Json::parse_event_t::key && !names.back().insert(parsed.template get<std::string>()).second)
      repeated = parsed.template get<std::string>();
    return true;
  };
  Json result;
  try {
    result = Json::parse(text, watch);
  } catch (const typename Json::parse_error& error) {
    throw_input_error("{}: not valid JSON from byte {} of {} on.", where, error.byte, text.size());
  } catch (const typename Json::exception&) {
    throw_input_error("{}: not valid JSON: a number is too large.", where);
  }
  if (!repeated.empty()) throw_input_error("{}: the field '{}' occurs twice.", where, repeated);
  return result;
}

template <class Json>
std::string text_of(const Json& json, int indent, bool ascii = false) {
  return json.dump(indent, ' ', ascii, Json::error_handler_t::replace);
}

template <class Json>
std::string excerpt(const Json& json) {
  std::string shown = text_of(json, -1);
  if (shown.size() <= kExcerpt) return shown;
  std::size_t end = kExcerpt;
  while (end > 0 && (static_cast<unsigned char>(shown[end]) & 0xC0) == 0x80) --end;  // no half of a character
  return shown.substr(0, end) + "...";
}

}  // namespace

bool nests_deeper(std::string_view json, int most) {
  int depth = 0;
  bool in_text = false;
  for (std::size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (in_text) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        in_text = false;
      }
    } else if (c == '"') {
      in_text = true;
    } else if (c == '{' || c == '[') {
      if (++depth > most) return true;
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return false;
}

nlohmann::json parse_json(std::string_view text, const std::string& where) {
  return parse<nlohmann::json>(text, where);
}

nlohmann::ordered_json parse_ordered_json(std::string_view text, const std::string& where) {
  return parse<nlohmann::ordered_json>(text, where);
}

nlohmann::json json_or_discarded(std::string_view text) {
  using Json = nlohmann::json;
  if (nests_deeper(text) || text.find('\0') != text.npos) return Json::value_t::discarded;
  return Json::parse(text, nullptr, /*allow_exceptions=*/false);
}

std::string json_text(const nlohmann::json& json, int indent) {
  return text_of(json, indent);
}
std::string json_text(const nlohmann::ordered_json& json, int indent) {
  return text_of(json, indent);
}

std::string json_quoted(const std::string& text, bool ascii) {
  return text_of(nlohmann::json(text), -1, ascii);
}

std::string json_excerpt(const nlohmann::json& json) {
  return excerpt(json);
}
std::string json_excerpt(const nlohmann::ordered_json& json) {
  return excerpt(json);
}

}  // namespace tandem
