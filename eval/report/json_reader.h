// Strict reading of JSON objects: every field is asked for by name and type, what was not asked for is an error.
#pragma once

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "engine/common/error.h"

namespace tandem::eval {

/// Parses `text` as one object. Invalid JSON, a repeated key or another kind of value is an InputError beginning with
/// `where`.
nlohmann::ordered_json parse_object(std::string_view text, const std::string& where);

class ObjectReader {
 public:
  ObjectReader(const nlohmann::ordered_json& object, std::string where) : object_(object), where_(std::move(where)) {
    if (!object.is_object()) throw_input_error("{}: an object was expected.", where_);
  }

  /// Whether an optional field is given.
  bool has(const char* name) const { return object_.contains(name); }

  std::string text(const char* name, bool may_be_empty = true) {
    const auto& value = get(name);
    if (!value.is_string()) fail(name, "a string");
    if (!may_be_empty && value.get_ref<const std::string&>().empty()) fail(name, "a string that is not empty");
    return value.get<std::string>();
  }

  /// Nothing for null.
  std::optional<std::string> text_or_null(const char* name) {
    if (get(name).is_null()) return std::nullopt;
    return text(name);
  }

  double number(const char* name, double low, double high) {
    const auto& value = get(name);
    if (!value.is_number()) fail(name, "a number");
    const double result = value.get<double>();
    if (!(result >= low && result <= high)) fail(name, fmt::format("between {} and {}", low, high));
    return result;
  }

  /// Nothing for null.
  std::optional<double> number_or_null(const char* name, double low, double high) {
    if (get(name).is_null()) return std::nullopt;
    return number(name, low, high);
  }

  template <class Integer>
  Integer integer(const char* name) {
    return as_integer<Integer>(get(name), name);
  }

  template <class Integer>
  Integer as_integer(const nlohmann::ordered_json& value, const char* name) const {
    using Limits = std::numeric_limits<Integer>;
    bool good = value.is_number_integer();
    if (good && value.is_number_unsigned())
      good = value.get<std::uint64_t>() <= static_cast<std::uint64_t>(Limits::max());
    else if (good)
      good = std::is_signed_v<Integer> && value.get<std::int64_t>() >= static_cast<std::int64_t>(Limits::min());
    if (!good) fail(name, fmt::format("a whole number from {} to {}", Limits::min(), Limits::max()));
    return value.get<Integer>();
  }

  bool boolean(const char* name) {
    const auto& value = get(name);
    if (!value.is_boolean()) fail(name, "true or false");
    return value.get<bool>();
  }

  /// A time or another count that must not be negative.
  std::int64_t duration(const char* name) {
    const auto result = integer<std::int64_t>(name);
    if (result < 0) fail(name, "0 or more");
    return result;
  }

  const nlohmann::ordered_json& array(const char* name) {
    const auto& value = get(name);
    if (!value.is_array()) fail(name, "a list");
    return value;
  }

  const nlohmann::ordered_json& object(const char* name) {
    const auto& value = get(name);
    if (!value.is_object()) fail(name, "an object");
    return value;
  }

  std::vector<std::string> texts(const char* name) {
    std::vector<std::string> result;
    for (const auto& item : array(name)) {
      if (!item.is_string()) fail(name, "a list of strings");
      result.push_back(item.get<std::string>());
    }
    return result;
  }

  /// Every field must have been asked for by now.
  void finish() const {
    for (const auto& item : object_.items())
      if (!seen_.contains(item.key())) throw_input_error("{}: the field '{}' is unknown.", where_, item.key());
  }

  [[noreturn]] void fail(const char* name, std::string_view expected) const {
    throw_input_error("{}: the field '{}' must be {}.", where_, name, expected);
  }

  const std::string& where() const { return where_; }

 private:
  const nlohmann::ordered_json& get(const char* name) {
    seen_.insert(name);
    const auto found = object_.find(name);
    if (found == object_.end()) throw_input_error("{}: the field '{}' is missing.", where_, name);
    return *found;
  }

  const nlohmann::ordered_json& object_;
  std::string where_;
  std::set<std::string, std::less<>> seen_;
};

}  // namespace tandem::eval
