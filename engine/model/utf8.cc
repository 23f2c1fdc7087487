#include "engine/model/utf8.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <utf8proc.h>

#include "engine/common/error.h"
#include "engine/common/interrupt.h"

namespace tandem {
namespace {

constexpr std::size_t kPiece = std::size_t{1} << 20;  // bytes between two looks at the user's wish to stop

/// Length of the well-formed character at `at`, or 0; `part` is then the length of its longest well-formed beginning
/// (at least 1), by table 3-7 of the Unicode standard.
std::size_t character_at(std::string_view text, std::size_t at, std::size_t& part) {
  const auto byte = [&](std::size_t i) {
    return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : std::uint8_t{0};
  };
  const unsigned first = byte(0);
  part = 1;
  if (first < 0x80) return 1;
  const std::size_t length = first >= 0xC2 && first <= 0xDF ? 2 : first >= 0xE0 && first <= 0xEF ? 3 : 4;
  if (first < 0xC2 || first > 0xF4) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    unsigned low = 0x80, high = 0xBF;
    if (i == 1) {
      if (first == 0xE0) low = 0xA0;
      if (first == 0xED) high = 0x9F;  // surrogates
      if (first == 0xF0) low = 0x90;
      if (first == 0xF4) high = 0x8F;
    }
    if (at + i >= text.size() || byte(i) < low || byte(i) > high) return 0;
    part = i + 1;
  }
  return length;
}

std::string compose_piece(std::string_view text) {
  // Below U+0300 everything is composed already: the lead bytes of longer characters are 0xCC and up.
  if (std::none_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) >= 0xCC; })) {
    return std::string(text);
  }
  utf8proc_uint8_t* composed = nullptr;
  const utf8proc_ssize_t size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                   &composed, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(composed, &std::free);
  TANDEM_CHECK(size >= 0, "normalization failed: {}", utf8proc_errmsg(size));
  return {reinterpret_cast<const char*>(composed), static_cast<std::size_t>(size)};
}

}  // namespace

std::string repair_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    stop_if_interrupted();
    for (const std::size_t end = std::min(at + kPiece, text.size()); at < end;) {
      std::size_t part = 0;
      const std::size_t length = character_at(text, at, part);
      if (length == 0) {
        out += "\xEF\xBF\xBD";
        at += part;
      } else {
        out.append(text, at, length);
        at += length;
      }
    }
  }
  return out;
}

std::size_t valid_utf8_bytes(std::string_view text) {
  std::size_t at = 0, part = 0;
  while (at < text.size()) {
    stop_if_interrupted();
    for (const std::size_t end = std::min(at + kPiece, text.size()); at < end;) {
      const std::size_t length = character_at(text, at, part);
      if (length == 0) return at;
      at += length;
    }
  }
  return at;
}

std::size_t unfinished_utf8(std::string_view text) {
  for (std::size_t back = 1; back <= std::min<std::size_t>(3, text.size()); ++back) {
    const auto first = static_cast<unsigned char>(text[text.size() - back]);
    if (first < 0x80) return 0;
    if (first < 0xC0) continue;  // continuation
    std::size_t part = 0;
    const std::size_t length = character_at(text, text.size() - back, part);
    const bool begins = first >= 0xC2 && first <= 0xF4;
    return length == 0 && begins && part == back ? back : 0;
  }
  return 0;
}

std::string compose_utf8(std::string_view text) {
  std::string out;
  for (std::size_t begin = 0; begin < text.size();) {
    stop_if_interrupted();
    // Nothing before an ASCII character is composed with it.
    std::size_t end = std::min(begin + kPiece, text.size());
    while (end < text.size() && static_cast<unsigned char>(text[end]) >= 0x80) ++end;
    out += compose_piece(text.substr(begin, end - begin));
    begin = end;
  }
  return out;
}

}  // namespace tandem
