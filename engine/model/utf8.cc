#include "engine/model/utf8.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <utf8proc.h>

#include "engine/common/error.h"
#include "engine/common/interrupt.h"
#include "engine/common/utf8_character.h"

namespace tandem {
namespace {

constexpr std::size_t kPiece = std::size_t{1} << 20;  // bytes between two looks at the user's wish to stop

std::string compose_piece(std::string_view text) {
  // Below U+0300 everything is composed already: the lead bytes of longer characters are 0xCC and up.
  if (std::ranges::none_of(text, [](char c) { return static_cast<unsigned char>(c) >= 0xCC; }))
    return std::string(text);
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
  while (true) {
    const std::size_t valid = valid_utf8_bytes(text);
    out += text.substr(0, valid);
    text.remove_prefix(valid);
    if (text.empty()) return out;
    out += "\xEF\xBF\xBD";
    text.remove_prefix(first_character(text).part);
  }
}

std::size_t valid_utf8_bytes(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    stop_if_interrupted();
    for (const std::size_t end = std::min(at + kPiece, text.size()); at < end;) {
      const std::size_t bytes = first_character(text.substr(at)).bytes;
      if (bytes == 0) return at;
      at += bytes;
    }
  }
  return at;
}

std::size_t unfinished_utf8(std::string_view text) {
  for (std::size_t back = 1; back <= std::min<std::size_t>(3, text.size()); ++back) {
    const auto first = static_cast<unsigned char>(text[text.size() - back]);
    if (first < 0x80) return 0;
    if (first < 0xC0) continue;  // continuation
    const Utf8Character found = first_character(text.substr(text.size() - back));
    const bool begins = first >= 0xC2 && first <= 0xF4;
    return found.bytes == 0 && begins && found.part == back ? back : 0;
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
