// JSON Lines: files with an object on each line, as data sets are published. Every error names file, line and field.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

/// One line's object. InputError, "<file>, line <n>: ...", for what is no JSON, with parse_json()'s reason, or no
/// object, and for fields that are missing or of another kind.
class JsonLine {
 public:
  JsonLine(std::string_view text, const std::string& file, std::size_t line);

  [[noreturn]] void refuse(const std::string& what) const;
  std::size_t number() const { return line_; }  // in the file, from 1 on
  bool has(const char* name) const { return json_.contains(name); }
  const nlohmann::json& field(const char* name) const;
  std::string text(const char* name) const { return text_of(field(name), name); }
  std::vector<std::string> texts(const char* name) const;
  std::vector<std::string> texts_or_none(const char* name) const;  // of a field that may be null

 private:
  std::string text_of(const nlohmann::json& value, const char* name) const;

  nlohmann::json json_;
  std::string file_;
  std::size_t line_;
};

/// Calls `with` for every line that is more than white space. InputError where no line is left: "<file> holds no
/// sample."
void for_each_json_line(std::string_view text, const std::string& file,
                        const std::function<void(const JsonLine&)>& with);

}  // namespace tandem
