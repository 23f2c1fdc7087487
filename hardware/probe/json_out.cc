#include "hardware/probe/json_out.h"

#include <charconv>
#include <cmath>
#include <utility>

namespace tandem::probe {
namespace {

/// Length of the valid UTF-8 sequence at the start of `text`; 0 where there is none.
std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  std::size_t length = 0;
  unsigned long code = 0;
  if ((first & 0xE0) == 0xC0) {
    length = 2;
    code = first & 0x1F;
  } else if ((first & 0xF0) == 0xE0) {
    length = 3;
    code = first & 0x0F;
  } else if ((first & 0xF8) == 0xF0) {
    length = 4;
    code = first & 0x07;
  } else {
    return 0;
  }
  if (text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
    code = (code << 6) | (byte(i) & 0x3F);
  }
  const unsigned long smallest = length == 2 ? 0x80 : length == 3 ? 0x800 : 0x10000;
  const bool surrogate = code >= 0xD800 && code <= 0xDFFF;
  return code < smallest || code > 0x10FFFF || surrogate ? 0 : length;
}

void write_fields(JsonWriter& json, std::string_view key, const Fields& fields) {
  json.begin_object(key);
  for (const Field& field : fields) json.field(field);
  json.end_object();
}

void write_section(JsonWriter& json, const Section& section) {
  json.begin_object(section.name);
  json.text("what", section.what);
  json.text("status", to_string(section.status));
  if (!section.error.empty()) json.text("error", section.error);
  json.number("seconds", section.seconds);
  json.number("cap_seconds", section.cap_seconds);
  json.begin_array("checks");
  for (const std::string& sentence : section.checks) json.text({}, sentence);
  json.end_array();
  json.begin_array("skipped");
  for (const std::string& label : section.skipped) json.text({}, label);
  json.end_array();
  json.begin_array("figures");
  for (const Figure& figure : section.figures) {
    json.begin_object();
    json.text("name", figure.name);
    json.number("value", figure.value);
    json.text("unit", figure.unit);
    json.number("p10", figure.p10);
    json.number("p90", figure.p90);
    json.integer("repeats", figure.repeats);
    write_fields(json, "conditions", figure.conditions);
    json.end_object();
  }
  json.end_array();
  json.end_object();
}

}  // namespace

std::string json_quote(std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out = "\"";
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = utf8_length(text.substr(i));
    const auto byte = static_cast<unsigned char>(text[i]);
    if (length == 0) {
      out += "\xEF\xBF\xBD";
      ++i;
      continue;
    }
    if (byte == '"' || byte == '\\') {
      out += '\\';
      out += text[i];
    } else if (byte == '\n') {
      out += "\\n";
    } else if (byte == '\t') {
      out += "\\t";
    } else if (byte < 0x20 || byte == 0x7F) {
      out += "\\u00";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    } else {
      out.append(text.substr(i, length));
    }
    i += length;
  }
  return out + '"';
}

std::string json_number(double value) {
  if (!std::isfinite(value)) return "null";
  char text[40];
  const auto [end, error] = std::to_chars(text, text + sizeof text, value);
  return error == std::errc() ? std::string(text, end) : "null";
}

void JsonWriter::field(const Field& field) {
  if (const auto* string = std::get_if<std::string>(&field.value)) text(field.key, *string);
  if (const auto* whole = std::get_if<std::int64_t>(&field.value)) integer(field.key, *whole);
  if (const auto* real = std::get_if<double>(&field.value)) number(field.key, *real);
  if (const auto* flag = std::get_if<bool>(&field.value)) boolean(field.key, *flag);
}

void JsonWriter::put(std::string_view key, std::string_view value) {
  if (!has_items_.empty()) {
    out_ += has_items_.back() ? ",\n" : "\n";
    has_items_.back() = true;
    out_.append(has_items_.size(), ' ');
  }
  if (!key.empty()) out_ += json_quote(key) + ": ";
  out_ += value;
}

void JsonWriter::open(std::string_view key, char bracket) {
  put(key, std::string_view(&bracket, 1));
  has_items_.push_back(false);
}

void JsonWriter::close(char bracket) {
  if (has_items_.empty()) throw ProbeError("A JSON bracket was closed that was never opened.");
  const bool items = has_items_.back();
  has_items_.pop_back();
  if (items) {
    out_ += '\n';
    out_.append(has_items_.size(), ' ');
  }
  out_ += bracket;
}

std::string JsonWriter::take() {
  if (!has_items_.empty()) throw ProbeError("A JSON document was taken before its brackets were closed.");
  return std::exchange(out_, {}) + "\n";
}

std::string to_json(const Report& report) {
  const std::lock_guard lock(report.mutex);
  JsonWriter json;
  json.begin_object();
  json.integer("schema_version", kSchemaVersion);
  json.text("program", "tandem-probe");
  json.text("started_utc", report.started_utc);
  json.boolean("quick", report.options.quick);
  json.number("cap_seconds", report.options.seconds);
  json.integer("memory_cap_bytes", static_cast<long long>(report.options.memory));
  json.begin_object("machine");
  for (const Field& field : report.machine) json.field(field);
  write_fields(json, "cpu", report.cpu);
  write_fields(json, "memory", report.memory);
  if (report.gpu_error.empty()) {
    write_fields(json, "gpu", report.gpu);
  } else {
    json.null("gpu");
    json.text("gpu_absent_because", report.gpu_error);
  }
  json.end_object();
  json.begin_object("sections");
  for (const Section& section : report.sections) write_section(json, section);
  json.end_object();
  json.end_object();
  return json.take();
}

}  // namespace tandem::probe
