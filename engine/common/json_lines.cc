#include "engine/common/json_lines.h"

#include <fmt/core.h>
#include <ranges>

#include "engine/common/error.h"
#include "engine/common/json.h"
#include "engine/common/trimmed.h"

namespace tandem {

JsonLine::JsonLine(std::string_view text, const std::string& file, std::size_t line)
    : json_(parse_json(text, fmt::format("{}, line {}", file, line))), file_(file), line_(line) {
  if (!json_.is_object()) refuse("not a JSON object");
}

void JsonLine::refuse(const std::string& what) const {
  throw_input_error("{}, line {}: {}.", file_, line_, what);
}

const nlohmann::json& JsonLine::field(const char* name) const {
  const auto found = json_.find(name);
  if (found == json_.end()) refuse(fmt::format("'{}' is missing", name));
  return *found;
}

std::string JsonLine::text_of(const nlohmann::json& value, const char* name) const {
  if (!value.is_string()) refuse(fmt::format("'{}' must hold text", name));
  return value.get<std::string>();
}

std::vector<std::string> JsonLine::texts(const char* name) const {
  const nlohmann::json& value = field(name);
  if (!value.is_array()) refuse(fmt::format("'{}' must be a list of texts", name));
  std::vector<std::string> all;
  for (const nlohmann::json& one : value) all.push_back(text_of(one, name));
  return all;
}

std::vector<std::string> JsonLine::texts_or_none(const char* name) const {
  return field(name).is_null() ? std::vector<std::string>() : texts(name);
}

void for_each_json_line(std::string_view text, const std::string& file,
                        const std::function<void(const JsonLine&)>& with) {
  bool any = false;
  std::size_t line = 0;
  for (const auto part : std::views::split(text, '\n')) {
    std::string_view one(part.begin(), part.end());
    ++line;
    if (one.ends_with('\r')) one.remove_suffix(1);
    if (trimmed(one).empty()) continue;
    with(JsonLine(one, file, line));
    any = true;
  }
  if (!any) throw_input_error("{} holds no sample.", file);
}

}  // namespace tandem
