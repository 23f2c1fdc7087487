#include "engine/common/printable.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <fmt/format.h>
#include <iterator>

#include "engine/common/utf8_character.h"

namespace tandem {
namespace {

struct Range {
  char32_t first, last;
};
constexpr std::array<Range, 11> kHidden = {{
    {0x00, 0x1F},
    {0x7F, 0x9F},
    {0x061C, 0x061C},    // Arabic letter mark
    {0x180E, 0x180E},    // Mongolian vowel separator
    {0x200B, 0x200B},    // zero width space; joiners, which scripts need, stay
    {0x200E, 0x200F},    // marks of direction
    {0x2028, 0x202E},    // separators, embeddings and overrides of direction
    {0x2060, 0x206F},    // word joiner, invisible operators, isolates of direction
    {0xFEFF, 0xFEFF},    // byte order mark
    {0xFFF9, 0xFFFB},    // interlinear annotation
    {0xE0000, 0xE007F},  // tags
}};

bool is_hidden(char32_t c) {
  return std::ranges::any_of(kHidden, [c](const Range& r) { return c >= r.first && c <= r.last; });
}

void append_escaped(std::string& out, char32_t code) {
  if (code > 0xFFFF) {  // a pair of surrogates
    const std::uint32_t above = code - 0x10000;
    fmt::format_to(std::back_inserter(out), "\\u{:04x}\\u{:04x}", 0xD800 + (above >> 10), 0xDC00 + (above & 0x3FF));
  } else {
    fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<std::uint32_t>(code));
  }
}

std::string shown(std::string_view text, bool keep_lines) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const auto [code, bytes, part] = first_character(text);
    if (bytes == 0) {
      out += "\uFFFD";
    } else if (is_hidden(code) && !(keep_lines && (code == '\n' || code == '\t'))) {
      append_escaped(out, code);
    } else {
      out += text.substr(0, bytes);
    }
    text.remove_prefix(std::max<std::size_t>(1, bytes));
  }
  return out;
}

}  // namespace

std::string printable(std::string_view text) {
  return shown(text, /*keep_lines=*/false);
}

std::string printable_lines(std::string_view text) {
  return shown(text, /*keep_lines=*/true);
}

}  // namespace tandem
