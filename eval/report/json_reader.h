// Strict reading of JSON objects: every field is asked for by name and type, what was not asked for is an error.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "engine/common/error.h"

namespace tandem::eval {

/// Parses `text` as one object. Invalid JSON, a repeated key or another kind of value is an InputError beginning with
/// `where`.
nlohmann::ordered_json parse_object(std::string_view text, const std::string& where);

class ObjectReader {
 public:
  using Json = nlohmann::ordered_json;

  ObjectReader(const Json& object, std::string where) : object_(object), where_(std::move(where)) {
    if (!object.is_object()) throw_input_error("{}: an object was expected.", where_);
  }

  /// Whether an optional field is given.
  bool has(const char* name) const { return object_.contains(name); }
  bool is_text(const char* name) const { return has(name) && object_.at(name).is_string(); }

  std::string text(const char* name, bool may_be_empty = true) {
    std::string value = typed(name, &Json::is_string, "a string").get<std::string>();
    if (!may_be_empty && value.empty()) fail(name, "a string that is not empty");
    return value;
  }

  double number(const char* name, double low, double high) {
    const double result = typed(name, &Json::is_number, "a number").get<double>();
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
  Integer as_integer(const Json& value, const char* name) const {
    using Limits = std::numeric_limits<Integer>;
    bool good = value.is_number_integer();
    if (good && value.is_number_unsigned())
      good = value.get<std::uint64_t>() <= static_cast<std::uint64_t>(Limits::max());
    else if (good)
      good = std::is_signed_v<Integer> && value.get<std::int64_t>() >= static_cast<std::int64_t>(Limits::min());
    if (!good) fail(name, fmt::format("a whole number from {} to {}", Limits::min(), Limits::max()));
    return value.get<Integer>();
  }

  bool boolean(const char* name) { return typed(name, &Json::is_boolean, "true or false").get<bool>(); }
  const Json& array(const char* name) { return typed(name, &Json::is_array, "a list"); }
  const Json& object(const char* name) { return typed(name, &Json::is_object, "an object"); }

  std::vector<std::string> texts(const char* name) {
    std::vector<std::string> result;
    for (const auto& item : array(name)) {
      if (!item.is_string()) fail(name, "a list of strings");
      result.push_back(item.get<std::string>());
    }
    return result;
  }

  // The calls that ObjectWriter has, too (json_fields.h): they set what they are given.
  void field(const char* name, std::string& value) { value = text(name); }
  void field(const char* name, bool& value) { value = boolean(name); }
  void field(const char* name, std::integral auto& value) { value = integer<std::decay_t<decltype(value)>>(name); }
  void field(const char* name, std::vector<std::string>& value) { value = texts(name); }
  template <std::integral Integer>
  void field(const char* name, std::vector<Integer>& value) {
    for (const auto& item : array(name)) value.push_back(as_integer<Integer>(item, name));
  }
  void field(const char* name, std::optional<std::string>& value) {
    if (!get(name).is_null()) value = text(name);
  }
  void filled(const char* name, std::string& value) { value = text(name, /*may_be_empty=*/false); }
  void number(const char* name, double& value, double low, double high) { value = number(name, low, high); }
  void number(const char* name, std::optional<double>& value, double low, double high) {
    value = number_or_null(name, low, high);
  }
  template <class Enum, std::size_t kCount>
  void one_of(const char* name, Enum& value, const std::array<const char*, kCount>& names) {
    const auto found = std::ranges::find(names, text(name));
    if (found == names.end()) fail(name, fmt::format("one of: {}", fmt::join(names, ", ")));
    value = static_cast<Enum>(found - names.begin());
  }
  void optional(const char* name, auto& value) {
    if (has(name)) field(name, value);
  }
  template <class Value>
  void optional(const char* name, std::optional<Value>& value) {
    if (has(name)) field(name, value.emplace());
  }
  bool present(const char* name, bool /*written*/) const { return has(name); }
  void object(const char* name, const auto& visit) {
    ObjectReader inside(object(name), where_ + ", " + name);
    visit(inside);
    inside.finish();
  }
  void list(const char* name, auto& items, const auto& visit) {
    for (const auto& item : array(name)) add_item(item, where_ + ", " + name, items, visit);
  }
  void numbered(const char* name, const char* one, auto& items, const auto& visit) {
    for (const auto& item : array(name))
      add_item(item, fmt::format("{}, {} {}", where_, one, items.size() + 1), items, visit);
  }
  void entries(const char* name, auto& items, const auto& read) {
    ObjectReader inside(object(name), where_ + ", " + name);
    for (const auto& item : inside.object_.items())
      items.emplace_back(item.key(), read(inside, item.key().c_str(), item.value()));
  }
  void require(bool good, const char* name, std::string_view expected) const {
    if (!good) fail(name, expected);
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
  static void add_item(const Json& json, std::string where, auto& items, const auto& visit) {
    ObjectReader inside(json, std::move(where));
    visit(inside, items.emplace_back());
    inside.finish();
  }

  const Json& typed(const char* name, bool (Json::*is)() const noexcept, std::string_view expected) {
    const Json& value = get(name);
    if (!(value.*is)()) fail(name, expected);
    return value;
  }

  const Json& get(const char* name) {
    seen_.insert(name);
    const auto found = object_.find(name);
    if (found == object_.end()) throw_input_error("{}: the field '{}' is missing.", where_, name);
    return *found;
  }

  const Json& object_;
  std::string where_;
  std::set<std::string, std::less<>> seen_;
};

}  // namespace tandem::eval
