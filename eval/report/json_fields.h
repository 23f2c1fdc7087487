// One list of fields for a JSON object that is written and read: a generic visit(fields, item) names each field once,
// and an ObjectWriter or an ObjectReader (json_reader.h) walks it. What both have:
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

#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "engine/common/error.h"
#include "eval/report/json_reader.h"

namespace tandem::eval {

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
