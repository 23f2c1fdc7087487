#include "eval/scoring/normalise.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>

#include "eval/scoring/python_text.h"

namespace tandem::eval {
namespace {

bool is_chinese_punctuation(char32_t c) {
  struct Range {
    char32_t first, last;
  };
  constexpr auto kRanges = std::to_array<Range>({{0x2013, 0x2014},
                                                 {0x2018, 0x2019},
                                                 {0x201B, 0x201F},
                                                 {0x2026, 0x2027},
                                                 {0x3001, 0x3003},
                                                 {0x300B, 0x3011},
                                                 {0x3014, 0x301F},
                                                 {0x3030, 0x3030},
                                                 {0x303E, 0x303F},
                                                 {0xFE4F, 0xFE4F},
                                                 {0xFF01, 0xFF0D},
                                                 {0xFF0F, 0xFF0F},
                                                 {0xFF1A, 0xFF20},
                                                 {0xFF3B, 0xFF40},
                                                 {0xFF5B, 0xFF64}});
  return std::any_of(kRanges.begin(), kRanges.end(), [c](Range range) { return c >= range.first && c <= range.last; });
}

/// A space in place of each article. Word boundaries stand at both ends of one, so that it is a whole run of word
/// characters.
std::u32string without_articles(std::u32string_view text) {
  std::u32string result;
  while (!text.empty()) {
    const auto end = std::find_if_not(text.begin(), text.end(), is_word);
    const auto next = std::find_if(end, text.end(), is_word);
    const std::u32string_view word(text.begin(), end);
    result += word == U"a" || word == U"an" || word == U"the" ? U" " : word;
    result.append(end, next);
    text = std::u32string_view(next, text.end());
  }
  return result;
}

}  // namespace

std::string normalise_answer(std::string_view text) {
  return normalise_cased_answer(lower(text));
}

std::string normalise_cased_answer(std::string_view text) {
  std::u32string kept = code_points(text);
  std::erase_if(kept, is_ascii_punctuation);
  return fmt::format("{}", fmt::join(split_words(to_utf8(without_articles(kept))), " "));
}

std::string normalise_chinese_answer(std::string_view text) {
  std::u32string kept = lower(code_points(text));
  std::erase_if(kept, [](char32_t c) { return is_ascii_punctuation(c) || is_chinese_punctuation(c) || is_space(c); });
  return to_utf8(kept);
}

}  // namespace tandem::eval
