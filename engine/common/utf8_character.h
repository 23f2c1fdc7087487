// One character of UTF-8 that may be broken.
#pragma once

#include <cstdint>
#include <string_view>

namespace tandem {

struct Utf8Character {
  char32_t code = 0;
  std::size_t bytes = 0;  // 0: no character
  std::size_t part = 1;   // bytes of the longest beginning of a character; at least 1
};

/// The first character of `text`, which must not be empty (Unicode standard, table 3-7).
inline Utf8Character first_character(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const unsigned first = byte(0);
  if (first < 0x80) return {first, 1};
  if (first < 0xC2 || first > 0xF4) return {};
  const std::size_t bytes = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  char32_t code = first & (0xFFu >> (bytes + 1));
  for (std::size_t i = 1; i < bytes; ++i) {
    unsigned low = 0x80, high = 0xBF;
    if (i == 1) {
      if (first == 0xE0) low = 0xA0;
      if (first == 0xED) high = 0x9F;  // surrogates
      if (first == 0xF0) low = 0x90;
      if (first == 0xF4) high = 0x8F;
    }
    if (i >= text.size() || byte(i) < low || byte(i) > high) return {0, 0, i};
    code = code << 6 | (byte(i) & 0x3Fu);
  }
  return {code, bytes, bytes};
}

}  // namespace tandem
