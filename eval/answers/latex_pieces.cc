#include "eval/answers/latex_pieces.h"

#include <algorithm>

#include "eval/scoring/python_text.h"
#include "eval/scoring/white_space.h"

namespace tandem::eval {
namespace {

constexpr std::u32string_view kBox = U"\\boxed{";

}  // namespace

bool is_space(char32_t c) {
  if (c < 0x80) return c == U' ' || (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x1f);
  return leading_space(to_utf8(std::u32string(1, c))) > 0;
}

std::size_t LatexPieces::spaces(std::size_t i) const {
  while (i < text_.size() && is_space(text_[i])) ++i;
  return i;
}

bool LatexPieces::may_begin(std::size_t i) const {
  return at(i) == U'$' || at(i) == U'\\' || at(i) == U'-' || (at(i + 1) == U'[' && is_space(at(i)));
}

// No content can hold its own closing mark, so that there is one place where each can end.

std::optional<LatexPieces::Span> LatexPieces::display_dollar(std::size_t begin) const {
  const std::size_t end = text_.find(U"$$", begin + 2);
  if (end == text_.npos || end == begin + 2 || at(end - 1) == U'\\') return std::nullopt;
  return Span{begin + 2, end, end + 2};
}

std::optional<LatexPieces::Span> LatexPieces::inline_dollar(std::size_t begin) const {
  for (std::size_t i = begin + 1; i < text_.size() && text_[i] != U'\n'; ++i) {
    if (text_[i] != U'$' || text_[i - 1] == U'\\') continue;
    return i > begin + 1 ? std::optional(Span{begin + 1, i, i + 1}) : std::nullopt;
  }
  return std::nullopt;
}

std::optional<LatexPieces::Span> LatexPieces::backslashed(std::size_t begin, char32_t close, bool one_line,
                                                          Search& search) const {
  std::size_t i = begin + 2;
  if (search.from <= i && i <= search.to) i = search.to;
  const auto stops = [&] { return (text_[i] == U'\\' && at(i + 1) == close) || (one_line && text_[i] == U'\n'); };
  while (i < text_.size() && !stops()) ++i;
  search = {std::min(begin + 2, search.from <= begin + 2 && begin + 2 <= search.to ? search.from : begin + 2), i};
  // A line end may be escaped: "\" and a line end are two characters of the content, of which the second ends it.
  const bool closes = i < text_.size() && text_[i] == U'\\' && i > begin + 2 && text_[i - 1] != U'\\';
  return closes ? std::optional(Span{begin + 2, i, i + 2}) : std::nullopt;
}

std::optional<LatexPieces::Span> LatexPieces::square(std::size_t begin) const {
  std::size_t i = begin + 2;
  while (i < text_.size() && text_[i] != U'\n' && text_[i] != U'[' && text_[i] != U']') ++i;
  if (i == begin + 2 || at(i) != U']' || i + 1 >= text_.size() || !is_space(text_[i + 1])) return std::nullopt;
  return Span{begin + 2, i, i + 2};
}

/// -\frac{1}{2.5}
std::optional<LatexPieces::Span> LatexPieces::fraction(std::size_t begin) const {
  std::size_t i = at(begin) == U'-' ? begin + 1 : begin;
  if (!follows(i, U"\\frac")) return std::nullopt;
  i += 5;
  for (int part = 0; part < 2; ++part) {
    const auto digits = [&] {
      const std::size_t from = i;
      while (i < text_.size() && is_digit(text_[i])) ++i;
      return i > from;
    };
    if (at(i++) != U'{') return std::nullopt;
    if (at(i) == U'-') ++i;
    if (!digits()) return std::nullopt;
    if (at(i) == U'.' || at(i) == U',') {
      ++i;
      if (!digits()) return std::nullopt;
    }
    if (at(i++) != U'}') return std::nullopt;
  }
  return Span{begin, i, i};
}

/// Whether a box with something in it begins and ends in the content.
bool LatexPieces::has_box(const Span& span) {
  std::size_t box = 0;
  if (box_.from <= span.begin && span.begin <= box_.to) {
    box = box_.to;
  } else {
    box = std::min(text_.find(kBox, span.begin), text_.size());
    box_ = {span.begin, box};
  }
  const std::size_t inside = box + kBox.size();
  if (inside >= span.end) return false;
  const std::size_t close = text_.substr(inside, span.end - inside).rfind(U'}');
  return close != text_.npos && close > 0;
}

std::optional<LatexPieces::Span> LatexPieces::span(std::size_t begin, bool boxed) {
  const bool escaped = begin > 0 && text_[begin - 1] == U'\\';
  std::optional<Span> found;
  const auto keep = [&](std::optional<Span> span) {
    if (!found && span && (!boxed || has_box(*span))) found = span;
  };
  if (at(begin) == U'$') {
    if (!escaped && at(begin + 1) == U'$') keep(display_dollar(begin));
    if (!escaped && (begin == 0 || !is_digit(text_[begin - 1]))) keep(inline_dollar(begin));
  } else if (at(begin) == U'\\') {
    if (!escaped && at(begin + 1) == U'[') keep(backslashed(begin, U']', false, bracket_));
    if (!escaped && at(begin + 1) == U'(') keep(backslashed(begin, U')', true, parenthesis_));
  } else if (at(begin + 1) == U'[' && is_space(at(begin))) {
    keep(square(begin));
  }
  if (!boxed && (at(begin) == U'-' || at(begin) == U'\\')) keep(fraction(begin));
  return found;
}

std::optional<std::size_t> LatexPieces::one(std::size_t begin, bool boxed, std::vector<LatexPiece>& into) {
  const std::optional<Span> found = span(begin, boxed);
  if (!found) return std::nullopt;
  std::size_t end = spaces(found->close);
  bool is_percent = false;
  for (const std::u32string_view word : {U"\\%", U"%", U"percent", U"Percent", U"pct", U"Pct"}) {
    if (!follows(end, word)) continue;
    end += word.size();
    is_percent = true;
    break;
  }
  into.push_back({std::u32string(text_.substr(found->begin, found->end - found->begin)), is_percent, false});
  return end;
}

std::optional<LatexPieces::Match> LatexPieces::match(std::size_t begin, bool boxed) {
  constexpr int kMostMore = 5;
  Match out;
  const auto first = one(begin, boxed, out.pieces);
  if (!first) return std::nullopt;
  out.end = *first;
  for (int i = 0; i < kMostMore; ++i) {
    const std::size_t word = spaces(out.end);
    std::optional<std::size_t> next;
    for (const std::u32string_view separator : {U",and", U"and", U",or", U"or", U","}) {
      if (next || !follows(word, separator)) continue;
      const std::size_t after = word + separator.size(), to = spaces(after);
      next = one(to, boxed, out.pieces);
      if (!next && to > after) next = one(to - 1, boxed, out.pieces);  // " [": the space belongs to it
    }
    if (!next) break;
    out.end = *next;
  }
  return out;
}

}  // namespace tandem::eval
