// JSON files of a model folder, read without trusting them: every error is a sentence that names the file, the field
// and the value.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/common/error.h"
#include "engine/common/json.h"
#include "engine/common/read_file.h"

namespace tandem {

/// The object that the text of a file holds, nested at most kJsonNesting deep. InputError otherwise.
inline nlohmann::json json_object_of(std::string_view text, const std::filesystem::path& file) {
  if (nests_deeper(text)) throw_input_error("{} is nested more than {} deep.", file.string(), kJsonNesting);
  nlohmann::json json = json_or_discarded(text);
  if (!json.is_object()) throw_input_error("{} is not a JSON object, or it is damaged.", file.string());
  return json;
}
/// The same of a file; errors as read_file(), too.
inline nlohmann::json read_json_object(const std::filesystem::path& file) {
  return json_object_of(read_file(file), file);
}

/// Typed access to an object's fields. A field that is null counts as missing, but for contains().
template <class Json>
class FieldsOf {
 public:
  FieldsOf(const Json& json, std::string file) : json_(json), file_(std::move(file)) {}

  const std::string& file() const { return file_; }
  bool contains(const char* name) const { return json_.contains(name); }
  const Json& operator[](const char* name) const { return json_.at(name); }
  bool has(const char* name) const { return json_.contains(name) && !json_[name].is_null(); }

  std::uint32_t size(const char* name, std::uint32_t most) const {
    const Json& value = get(name);
    if (!value.is_number_integer() || value.template get<std::int64_t>() < 1 ||
        value.template get<std::int64_t>() > most)
      bad(name, value, fmt::format("a whole number from 1 to {}", most));
    return value.template get<std::uint32_t>();
  }
  std::uint32_t size_or(const char* name, std::uint32_t most, std::uint32_t otherwise) const {
    return contains(name) ? size(name, most) : otherwise;
  }

  double number(const char* name, double above, double most) const {
    const Json& value = get(name);
    if (!value.is_number() || !(value.template get<double>() > above) || !(value.template get<double>() <= most))
      bad(name, value, fmt::format("a number above {} and at most {}", above, most));
    return value.template get<double>();
  }

  std::string text(const char* name) const {
    const Json& value = get(name);
    if (!value.is_string()) bad(name, "a text");
    return value.template get<std::string>();
  }

  std::string text_or(const char* name, const char* otherwise) const { return has(name) ? text(name) : otherwise; }

  std::optional<bool> flag(const char* name) const {
    if (!has(name)) return std::nullopt;
    if (!json_[name].is_boolean()) bad(name, "true or false");
    return json_[name].template get<bool>();
  }

  /// A token id or a list of them.
  std::vector<std::int32_t> tokens(const char* name, std::uint32_t vocab) const {
    std::vector<std::int32_t> out;
    if (!has(name)) return out;
    const Json list = json_[name].is_array() ? json_[name] : Json::array({json_[name]});
    for (const Json& value : list) {
      if (!value.is_number_integer() || value.template get<std::int64_t>() < 0 ||
          value.template get<std::int64_t>() >= vocab)
        bad(name, value, fmt::format("token numbers below the vocabulary's {}", vocab));
      out.push_back(value.template get<std::int32_t>());
    }
    return out;
  }

  [[noreturn]] void bad(const char* name, const std::string& wanted) const { bad(name, json_.at(name), wanted); }
  [[noreturn]] void bad(const char* name, const Json& value, const std::string& wanted) const {
    throw_input_error("{}: field '{}' is {}, but {} is needed.", file_, name, json_excerpt(value), wanted);
  }

 private:
  const Json& get(const char* name) const {
    if (!has(name)) throw_input_error("{}: field '{}' is missing.", file_, name);
    return json_[name];
  }

  const Json& json_;
  std::string file_;
};
using JsonFields = FieldsOf<nlohmann::json>;

}  // namespace tandem
