// Strict reading of JSON objects: every field is asked for by name and type, what was not asked for is an error. And
// one list of fields for an object that is written and read: a generic visit(fields, item) names each field once, and
// an ObjectWriter or an ObjectReader walks it. What both have:
//   field(name, value)           of the value's type: text, flag, whole number, lists of texts or whole numbers;
//                                null where an optional value is not there
//   filled(name, text)           a text that is not empty
//   number(name, value, l, h)    from l to h; null where an optional one is not there
//   one_of(name, value, names)   an enumeration, whose values have these names
//   optional(name, value)        left out where it is its type's default
//   present(name, written)       whether a field is there that may be left out
//   object(name, visit)          visit(fields) of an object inside
//   list(name, items, visit)     visit(fields, item) of each object of a list; numbered(): errors say which by `one`
//   entries(name, items, read)   an object of names and values; read(reader of the object, name, JSON) gives a value
//   require(good, name, what)    what a reader expects of a field beyond its type; of the writer's values nothing
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

/// `text` as one object. InputError that begins with `where` for invalid JSON, a repeated key or another value.
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

  // The calls that ObjectWriter has, too: they set what they are given.
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

class ObjectWriter {
 public:
  explicit ObjectWriter(nlohmann::ordered_json& json) : json_(json) { json_ = nlohmann::ordered_json::object(); }

  void field(const char* name, const auto& value) { json_[name] = value; }
  template <class Value>
  void field(const char* name, const std::optional<Value>& value) {
    json_[name] = value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json();
  }
  void filled(const char* name, const std::string& text) { field(name, text); }
  void number(const char* name, const auto& value, double /*low*/, double /*high*/) { field(name, value); }
  template <class Enum, std::size_t kCount>
  void one_of(const char* name, Enum value, const std::array<const char*, kCount>& names) {
    field(name, names[static_cast<std::size_t>(value)]);
  }
  template <class Value>
  void optional(const char* name, const Value& value) {
    if (value != Value()) field(name, value);
  }
  bool present(const char* /*name*/, bool written) const { return written; }
  void object(const char* name, const auto& visit) {
    ObjectWriter inside(json_[name]);
    visit(inside);
  }
  void list(const char* name, const auto& items, const auto& visit) {
    nlohmann::ordered_json& list = json_[name] = nlohmann::ordered_json::array();
    for (const auto& item : items) {
      ObjectWriter inside(list.emplace_back());
      visit(inside, item);
    }
  }
  void numbered(const char* name, const char* /*one*/, const auto& items, const auto& visit) {
    list(name, items, visit);
  }
  void entries(const char* name, const auto& items, const auto& /*read*/) {
    nlohmann::ordered_json& object = json_[name] = nlohmann::ordered_json::object();
    for (const auto& [key, value] : items) {
      TANDEM_CHECK(!object.contains(key), "{}: '{}' is listed twice", name, key);
      object[key] = value;
    }
  }
  void require(bool /*good*/, const char* /*name*/, std::string_view /*expected*/) const {}
  /// A reader's alone, which the functions of entries() call.
  template <class Integer>
  Integer as_integer(const nlohmann::ordered_json& value, const char* name) const;

 private:
  nlohmann::ordered_json& json_;
};

/// The JSON object of an item.
nlohmann::ordered_json written(const auto& item, const auto& visit) {
  nlohmann::ordered_json json;
  ObjectWriter out(json);
  visit(out, item);
  return json;
}

/// Whether a visit's fields are read: it has more to do then.
template <class Fields>
constexpr bool kReads = std::is_same_v<std::remove_cvref_t<Fields>, ObjectReader>;

}  // namespace tandem::eval
