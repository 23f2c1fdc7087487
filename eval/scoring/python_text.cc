#include "eval/scoring/python_text.h"

#include <algorithm>
#include <array>
#include <utf8proc.h>

#include "engine/model/utf8.h"

namespace tandem::eval {
namespace {

constexpr char32_t kCapitalSigma = 0x3A3, kSigma = 0x3C3, kFinalSigma = 0x3C2, kCapitalDottedI = 0x130;

utf8proc_category_t category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

/// Unicode's property Cased: letters with a case, and the marks with Other_Lowercase or Other_Uppercase that are not
/// case-ignorable anyway.
bool is_cased(char32_t c) {
  struct Range {
    char32_t first, last;
  };
  constexpr std::array<Range, 7> kOthers = {{{0xAA, 0xAA},
                                             {0xBA, 0xBA},
                                             {0x2160, 0x217F},
                                             {0x24B6, 0x24E9},
                                             {0x1F130, 0x1F149},
                                             {0x1F150, 0x1F169},
                                             {0x1F170, 0x1F189}}};
  const auto kind = category(c);
  return kind == UTF8PROC_CATEGORY_LU || kind == UTF8PROC_CATEGORY_LL || kind == UTF8PROC_CATEGORY_LT ||
         std::any_of(kOthers.begin(), kOthers.end(), [c](Range range) { return c >= range.first && c <= range.last; });
}

/// Unicode's property Case_Ignorable: marks, and punctuation inside words.
bool is_case_ignorable(char32_t c) {
  constexpr std::u32string_view kInWords =
      U"'.:\u00B7\u0387\u055F\u05F4\u2018\u2019\u2024\u2027\uFE13\uFE52\uFE55\uFF07\uFF0E\uFF1A";
  const auto kind = category(c);
  return kind == UTF8PROC_CATEGORY_MN || kind == UTF8PROC_CATEGORY_ME || kind == UTF8PROC_CATEGORY_CF ||
         kind == UTF8PROC_CATEGORY_LM || kind == UTF8PROC_CATEGORY_SK || kInWords.find(c) != kInWords.npos;
}

/// A letter with a case before it and none after it, whatever is case-ignorable left out.
bool ends_word(std::u32string_view text, std::size_t at) {
  const auto before = text.substr(0, at), after = text.substr(at + 1);
  const auto previous = std::find_if_not(before.rbegin(), before.rend(), is_case_ignorable);
  const auto next = std::find_if_not(after.begin(), after.end(), is_case_ignorable);
  return previous != before.rend() && is_cased(*previous) && (next == after.end() || !is_cased(*next));
}

}  // namespace

std::u32string code_points(std::string_view text) {
  const std::string valid = repair_utf8(text);
  std::u32string result;
  result.reserve(valid.size());
  for (std::size_t at = 0; at < valid.size();) {
    utf8proc_int32_t c = 0;
    at += static_cast<std::size_t>(utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(valid.data()) + at,
                                                    static_cast<utf8proc_ssize_t>(valid.size() - at), &c));
    result.push_back(static_cast<char32_t>(c));
  }
  return result;
}

std::string to_utf8(std::u32string_view text) {
  std::string result;
  result.reserve(text.size());
  for (const char32_t c : text) {
    std::array<utf8proc_uint8_t, 4> bytes{};
    const auto n = utf8proc_encode_char(static_cast<utf8proc_int32_t>(c), bytes.data());
    result.append(reinterpret_cast<const char*>(bytes.data()), static_cast<std::size_t>(n));
  }
  return result;
}

std::u32string lower(std::u32string_view text) {
  std::u32string result;
  result.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char32_t c = text[i];
    if (c == kCapitalSigma) {
      result.push_back(ends_word(text, i) ? kFinalSigma : kSigma);
    } else if (c == kCapitalDottedI) {
      result += U"i\u0307";
    } else {
      result.push_back(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
    }
  }
  return result;
}

bool is_word(char32_t c) {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
      return true;
    default:
      return c == U'_';
  }
}

bool is_digit(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_ND;
}

bool is_ascii_punctuation(char32_t c) {
  return (c >= U'!' && c <= U'/') || (c >= U':' && c <= U'@') || (c >= U'[' && c <= U'`') || (c >= U'{' && c <= U'~');
}

bool is_space(char32_t c) {
  if (c <= 0x85) return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20) || c == 0x85;
  const auto kind = category(c);
  return kind == UTF8PROC_CATEGORY_ZS || kind == UTF8PROC_CATEGORY_ZL || kind == UTF8PROC_CATEGORY_ZP;
}

std::string lower(std::string_view text) {
  return to_utf8(lower(code_points(text)));
}

std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  std::size_t at = 0;
  for (std::size_t found = text.find(from); found != text.npos; found = text.find(from, at)) {
    out.append(text, at, found - at).append(to);
    at = found + from.size();
  }
  return out.append(text, at);
}

std::size_t leading_space(std::string_view text) {
  utf8proc_int32_t c = 0;
  const auto bytes = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                      static_cast<utf8proc_ssize_t>(text.size()), &c);
  return bytes > 0 && is_space(static_cast<char32_t>(c)) ? static_cast<std::size_t>(bytes) : 0;
}

std::string_view strip(std::string_view text) {
  while (const std::size_t n = leading_space(text)) text.remove_prefix(n);
  for (std::size_t n = 1; n <= 3 && n <= text.size();) {
    const bool is_last = leading_space(text.substr(text.size() - n)) == n;
    if (is_last) text.remove_suffix(n);
    n = is_last ? 1 : n + 1;
  }
  return text;
}

std::vector<std::string_view> split_words(std::string_view text) {
  std::vector<std::string_view> words;
  for (std::size_t begin = 0, at = 0; at <= text.size();) {
    const std::size_t space = leading_space(text.substr(at));
    const bool ends = space > 0 || at == text.size();
    if (ends && at > begin) words.push_back(text.substr(begin, at - begin));
    at += std::max<std::size_t>(1, space);
    if (ends) begin = at;
  }
  return words;
}

}  // namespace tandem::eval
