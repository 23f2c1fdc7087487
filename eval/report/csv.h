// One cell of comma-separated values (RFC 4180).
#pragma once

#include <string>

namespace tandem::eval {

/// As it is, or in quotes where it holds what separates cells or lines.
inline std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"') out += '"';
    out += c;
  }
  return out + "\"";
}

}  // namespace tandem::eval
