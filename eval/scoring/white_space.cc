#include "eval/scoring/white_space.h"

namespace tandem::eval {

std::size_t leading_space(std::string_view text) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const unsigned a = byte(0), b = byte(1), c = byte(2);
  if (text.empty()) return 0;
  if ((a >= 0x09 && a <= 0x0d) || (a >= 0x1c && a <= 0x20)) return 1;
  if (a == 0xc2 && (b == 0x85 || b == 0xa0)) return 2;
  if (a == 0xe1 && b == 0x9a && c == 0x80) return 3;  // U+1680
  if (a == 0xe2 && b == 0x80 && ((c >= 0x80 && c <= 0x8a) || c == 0xa8 || c == 0xa9 || c == 0xaf)) return 3;
  if (a == 0xe2 && b == 0x81 && c == 0x9f) return 3;  // U+205F
  if (a == 0xe3 && b == 0x80 && c == 0x80) return 3;  // U+3000
  return 0;
}

std::string_view strip(std::string_view text) {
  while (const std::size_t n = leading_space(text)) text.remove_prefix(n);
  for (bool again = true; again;) {
    again = false;
    for (std::size_t n = 1; n <= 3 && n <= text.size(); ++n) {
      if (leading_space(text.substr(text.size() - n)) != n) continue;
      text.remove_suffix(n);
      again = true;
      break;
    }
  }
  return text;
}

std::vector<std::string_view> split_words(std::string_view text) {
  std::vector<std::string_view> words;
  std::size_t begin = 0, at = 0;
  const auto end_word = [&] {
    if (at > begin) words.push_back(text.substr(begin, at - begin));
  };
  while (at < text.size()) {
    const std::size_t space = leading_space(text.substr(at));
    if (space == 0) {
      ++at;
      continue;
    }
    end_word();
    at += space;
    begin = at;
  }
  end_word();
  return words;
}

}  // namespace tandem::eval
