#include "eval/report/markdown.h"

#include <algorithm>
#include <array>

#include "engine/common/printable.h"

namespace tandem::eval {
namespace {

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
/// Of a word: letters and digits, also those beyond ASCII.
bool is_word(char c) {
  return is_letter(c) || is_digit(c) || (c & 0x80) != 0;
}
/// Whether the character at `i` would be read as more than itself.
bool is_syntax(std::string_view text, std::size_t i) {
  const char before = i > 0 ? text[i - 1] : ' ', next = i + 1 < text.size() ? text[i + 1] : ' ';
  if (std::string_view("`*~|$").find(text[i]) != std::string_view::npos) return true;
  switch (text[i]) {
    case '\\':
      return next > ' ' && next < 0x7F && !is_letter(next) && !is_digit(next);
    case '_':
      return !is_word(before) || !is_word(next);
    case '<':
      return is_letter(next) || next == '/' || next == '!' || next == '?';
    case '&':
      return is_letter(next) || next == '#';
    case '[':  // a footnote
      return next == '^';
    case ']':
      return next == '(' || next == '[';
    case ':':  // a bare address
      return text.substr(i).starts_with("://");
    case '.': {
      if (i < 3 || (i > 3 && is_word(text[i - 4]))) return false;
      return std::all_of(text.begin() + static_cast<std::ptrdiff_t>(i - 3),
                         text.begin() + static_cast<std::ptrdiff_t>(i), [](char c) { return c == 'w' || c == 'W'; });
    }
    default:
      return false;
  }
}

/// Where a paragraph begins with a block's mark: the place of the character to escape, else npos.
std::size_t mark_of_block(std::string_view text) {
  if (text.empty()) return std::string_view::npos;
  const auto ends_at = [&](std::size_t i) { return i >= text.size() || text[i] == ' '; };
  if (text[0] == '>' || text[0] == '=') return 0;
  if (text[0] == '[') return 0;  // a definition, which would make links of brackets all over the page
  if (text[0] == '#') return ends_at(text.find_first_not_of('#')) ? 0 : std::string_view::npos;
  if (text[0] == '+') return ends_at(1) ? 0 : std::string_view::npos;
  if (text[0] == '-') return ends_at(1) || text[1] == '-' ? 0 : std::string_view::npos;
  const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  if (digits > 0 && digits < text.size() && (text[digits] == '.' || text[digits] == ')') && ends_at(digits + 1))
    return digits;
  return std::string_view::npos;
}

}  // namespace

std::string markdown_text(std::string_view text) {
  const std::string shown = printable(text);
  std::string out;
  out.reserve(shown.size());
  for (std::size_t i = 0; i < shown.size(); ++i) {
    if (is_syntax(shown, i)) out += '\\';
    out += shown[i];
  }
  return out;
}

std::string markdown_paragraph(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));  // four would begin code
  std::string out = markdown_text(text);
  if (const std::size_t mark = mark_of_block(out); mark != std::string_view::npos) out.insert(mark, 1, '\\');
  return out;
}

std::string markdown_code(std::string_view text) {
  const std::string shown = printable(text);
  std::size_t longest = 0, run = 0;
  for (const char c : shown) {
    run = c == '`' ? run + 1 : 0;
    longest = std::max(longest, run);
  }
  const std::string fence(longest + 1, '`');
  const bool pad =
      shown.empty() || shown.front() == '`' || shown.back() == '`' || (shown.front() == ' ' && shown.back() == ' ');
  return fence + (pad ? " " : "") + shown + (pad ? " " : "") + fence;
}

std::string csv_cell(const std::string& text) {
  // Signs that begin a formula, also in full width. Tabs and line ends are spelled out.
  constexpr std::array<std::string_view, 8> kSigns = {"=", "+", "-", "@", "\uFF1D", "\uFF0B", "\uFF0D", "\uFF20"};
  const std::string_view words = std::string_view(text).substr(std::min(text.find_first_not_of(' '), text.size()));
  const bool formula = std::ranges::any_of(kSigns, [&](std::string_view sign) { return words.starts_with(sign); });
  const std::string shown = (formula ? "'" : "") + printable(text);
  if (shown.find_first_of(",;\"") == std::string::npos) return shown;
  std::string out = "\"";
  for (const char c : shown) {
    if (c == '"') out += '"';
    out += c;
  }
  return out + "\"";
}

}  // namespace tandem::eval
