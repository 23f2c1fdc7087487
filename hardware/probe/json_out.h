// A small JSON writer, and the report written with it. The probe must build where no JSON library is.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "hardware/probe/probe.h"

namespace tandem::probe {

/// `text` as a JSON string with quotes. Bytes that are not UTF-8 become U+FFFD, so the document stays valid.
std::string json_quote(std::string_view text);
/// Shortest text that reads back as the same number; null for NaN and infinities, which JSON does not have.
std::string json_number(double value);

/// Builds one indented document. Keys are empty inside arrays.
class JsonWriter {
 public:
  void begin_object(std::string_view key = {}) { open(key, '{'); }
  void end_object() { close('}'); }
  void begin_array(std::string_view key = {}) { open(key, '['); }
  void end_array() { close(']'); }
  void text(std::string_view key, std::string_view value) { put(key, json_quote(value)); }
  void number(std::string_view key, double value) { put(key, json_number(value)); }
  void integer(std::string_view key, long long value) { put(key, std::to_string(value)); }
  void boolean(std::string_view key, bool value) { put(key, value ? "true" : "false"); }
  void null(std::string_view key) { put(key, "null"); }
  void field(const Field& field);
  /// The finished document; all objects and arrays must be closed.
  std::string take();

 private:
  void put(std::string_view key, std::string_view value);
  void open(std::string_view key, char bracket);
  void close(char bracket);
  std::string out_;
  std::vector<bool> has_items_;
};

/// The whole report. Locks it while reading.
std::string to_json(const Report& report);

}  // namespace tandem::probe
