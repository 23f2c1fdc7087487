#include "eval/answers/math_candidates.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <iterator>

#include "eval/answers/plain_pieces.h"
#include "eval/scoring/python_text.h"

namespace tandem::eval {
namespace {

using Found = std::optional<MathCandidate>;

constexpr std::u32string_view kOpenBox = U"\\boxed{";

/// Finds formulas that begin at given places of one text. No content can hold its own closing mark, so that there is
/// one place where each can end.
class LatexPieces : Characters {
 public:
  using Characters::Characters;

  /// A formula that begins at `begin` ($$, \[, $, \(, " [" or, unless `boxed`, a \frac of numbers) and up to five more
  /// that "and", "or" or commas join. `boxed`: those with a \boxed{} in them. White space behind the last one belongs
  /// to it.
  Found match(std::size_t begin, bool boxed) {
    constexpr int kMostMore = 5;
    MathCandidate out;
    const auto first = one(begin, boxed, out.latex);
    if (!first) return std::nullopt;
    out.end = *first;
    for (int i = 0; i < kMostMore; ++i) {
      const std::size_t word = spaces(out.end);
      std::optional<std::size_t> next;
      for (const std::u32string_view separator : {U",and", U"and", U",or", U"or", U","}) {
        if (next || !follows(word, separator)) continue;
        const std::size_t after = word + separator.size(), to = spaces(after);
        next = one(to, boxed, out.latex);
        if (!next && to > after) next = one(to - 1, boxed, out.latex);  // " [": the space belongs to it
      }
      if (!next) break;
      out.end = *next;
    }
    return out;
  }

 private:
  struct Span {
    std::size_t begin = 0, end = 0;  // of the content
    std::size_t close = 0;           // behind the closing mark
  };
  using MaybeSpan = std::optional<Span>;
  /// The last search for a mark: there is none from `from` until `to`.
  struct Search {
    std::size_t from = 1, to = 0;
    bool has(std::size_t at) const { return from <= at && at <= to; }
  };

  MaybeSpan display_dollar(std::size_t begin) const {
    const std::size_t end = text_.find(U"$$", begin + 2);
    if (end == text_.npos || end == begin + 2 || at(end - 1) == U'\\') return std::nullopt;
    return Span{begin + 2, end, end + 2};
  }

  MaybeSpan inline_dollar(std::size_t begin) const {
    for (std::size_t i = begin + 1; i < text_.size() && text_[i] != U'\n'; ++i) {
      if (text_[i] != U'$' || text_[i - 1] == U'\\') continue;
      return i > begin + 1 ? MaybeSpan(Span{begin + 1, i, i + 1}) : std::nullopt;
    }
    return std::nullopt;
  }

  MaybeSpan backslashed(std::size_t begin, char32_t close, bool one_line, Search& search) const {
    const std::size_t content = begin + 2;
    const bool known = search.has(content);
    std::size_t i = known ? search.to : content;
    const auto stops = [&] { return (text_[i] == U'\\' && at(i + 1) == close) || (one_line && text_[i] == U'\n'); };
    while (i < text_.size() && !stops()) ++i;
    search = {known ? search.from : content, i};
    // A line end may be escaped: "\" and a line end are two characters of the content, of which the second ends it.
    const bool closes = at(i) == U'\\' && i > content && text_[i - 1] != U'\\';
    return closes ? MaybeSpan(Span{content, i, i + 2}) : std::nullopt;
  }

  MaybeSpan square(std::size_t begin) const {
    const std::size_t i = text_.find_first_of(U"\n[]", begin + 2);
    if (i == begin + 2 || at(i) != U']' || !is_space(at(i + 1))) return std::nullopt;
    return Span{begin + 2, i, i + 2};
  }

  /// -\frac{1}{2.5}
  MaybeSpan fraction(std::size_t begin) const {
    std::size_t i = at(begin) == U'-' ? begin + 1 : begin;
    if (!follows(i, U"\\frac")) return std::nullopt;
    i += 5;
    const auto skip_digits = [&] {
      const std::size_t from = i;
      i = digits(i);
      return i > from;
    };
    for (int part = 0; part < 2; ++part) {
      if (at(i++) != U'{') return std::nullopt;
      if (at(i) == U'-') ++i;
      if (!skip_digits()) return std::nullopt;
      if (at(i) == U'.' || at(i) == U',') {
        ++i;
        if (!skip_digits()) return std::nullopt;
      }
      if (at(i++) != U'}') return std::nullopt;
    }
    return Span{begin, i, i};
  }

  /// Whether a box with something in it begins and ends in the content.
  bool has_box(const Span& span) {
    if (!box_.has(span.begin)) box_ = {span.begin, std::min(text_.find(kOpenBox, span.begin), text_.size())};
    const std::size_t inside = box_.to + kOpenBox.size();
    if (inside >= span.end) return false;
    const std::size_t close = text_.substr(inside, span.end - inside).rfind(U'}');
    return close != text_.npos && close > 0;
  }

  MaybeSpan span(std::size_t begin, bool boxed) {
    const bool escaped = begin > 0 && text_[begin - 1] == U'\\';
    MaybeSpan found;
    const auto keep = [&](const MaybeSpan& span) {
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

  std::optional<std::size_t> one(std::size_t begin, bool boxed, std::vector<LatexPiece>& into) {
    const MaybeSpan found = span(begin, boxed);
    if (!found) return std::nullopt;
    std::size_t end = spaces(found->close);
    bool is_percent = false;
    for (const std::u32string_view word : {U"\\%", U"%", U"percent", U"Percent", U"pct", U"Pct"}) {
      if (is_percent || !follows(end, word)) continue;
      end += word.size();
      is_percent = true;
    }
    into.push_back({std::u32string(text_.substr(found->begin, found->end - found->begin)), is_percent, false});
    return end;
  }

  Search bracket_, parenthesis_, box_;
};

class Finder : Characters {
 public:
  explicit Finder(std::u32string_view text) : Characters(text), latex_(text), plain_(text) {}

  void hoped() {
    constexpr std::u32string_view kSaid = U"final answer is";
    const auto ended = [&](Found found) {
      const std::size_t end = found ? hope(found->end) : 0;
      if (end == 0) return Found();
      found->end = end;
      return found;
    };
    const auto hopes = [&](std::size_t end) { return hope(end) != 0; };
    each_behind(kSaid, [&](std::size_t from) { return ended(spaced_latex(past(from, U":"))); });
    each_behind(kSaid, [&](std::size_t from) { return ended(spaced_plain(past(from, U":"), hopes)); });
  }

  void boxed() {
    each_behind_is(true, [&](std::size_t from) { return spaced_latex(from); });
    each([&](std::size_t from) { return latex_.match(from, true); });
    const std::size_t box = text_.find(kOpenBox), close = text_.rfind(U'}');
    if (box != text_.npos && close != text_.npos && close > box + kOpenBox.size()) {
      MathCandidate& whole = out_.emplace_back();
      whole.begin = box;
      whole.end = close + 1;
      whole.latex.push_back({std::u32string(text_.substr(box, close + 1 - box)), false, true});
    }
    each_behind_is(false, [&](std::size_t from) { return plain(from, any); });
  }

  void answers(std::u32string_view said) {
    constexpr std::size_t kNear = 50, kFar = 100;
    each_behind(said, [&](std::size_t from) {
      Found found;
      for (std::size_t i = from; !found && i <= std::min(from + kNear, text_.size()); ++i)
        found = latex_.match(i, false);
      return found;
    });
    const auto no_equation = [&](std::size_t end) { return !follows(spaces(end), U"="); };
    each_behind(said, [&](std::size_t from) {
      const std::u32string_view near = text_.substr(from, kFar);
      const std::size_t line = from + std::min(near.find(U'\n'), near.size());
      Found found;
      for (std::size_t i = line + 1; !found && i-- > from;)  // behind the last "="
        if (follows(i, U"=")) found = spaced_plain(i + 1, no_equation);
      for (std::size_t i = from; !found && i <= std::min(from + kNear, line); ++i) found = plain(i, no_equation);
      return found;
    });
  }

  void anywhere() {
    each([&](std::size_t from) { return latex_.match(from, false); });
    each([&](std::size_t from) { return plain_.expression(from, any); });
    each([&](std::size_t from) { return plain_.number(from, any); });
  }

  std::vector<MathCandidate> from_the_end() {
    std::stable_sort(out_.begin(), out_.end(), [](const MathCandidate& a, const MathCandidate& b) {
      return a.end != b.end ? a.end > b.end : a.begin < b.begin;
    });
    if (out_.size() > kMostMathCandidates) out_.resize(kMostMathCandidates);
    return std::move(out_);
  }

 private:
  using Find = std::function<Found(std::size_t from)>;

  /// Matches that begin one behind another, as re.finditer() has them; only the last ones are kept.
  void each(const Find& find) {
    std::deque<MathCandidate> last;
    for (std::size_t i = 0; i <= text_.size();) {
      Found found = find(i);
      const std::size_t begin = i++;
      if (!found) continue;
      i = std::max(found->end, i);
      found->begin = begin;
      last.push_back(std::move(*found));
      if (last.size() > kMostMathCandidates) last.pop_front();
    }
    std::move(last.begin(), last.end(), std::back_inserter(out_));
  }

  /// The same behind a word of small letters, which stands there in any case.
  void each_behind(std::u32string_view word, const Find& find) {
    const auto same = [](char32_t c, char32_t small) { return (c >= U'A' && c <= U'Z' ? c + 32 : c) == small; };
    each([&](std::size_t i) {
      const std::u32string_view here = text_.substr(i, word.size());
      return std::equal(here.begin(), here.end(), word.begin(), word.end(), same) ? find(i + word.size()) : Found();
    });
  }

  /// The same behind " is" and an optional colon that stand up to 100 characters behind "final answer"; `lines`: also
  /// on a later line.
  void each_behind_is(bool lines, const Find& find) {
    each_behind(U"final answer", [&](std::size_t from) {
      constexpr std::size_t kMost = 100;
      Found found;
      for (std::size_t i = from; !found && i <= std::min(from + kMost, text_.size()); ++i) {
        const std::size_t word = spaces(i);
        if (word > i && follows(word, U"is")) found = find(past(word + 2, U":"));
        if (!lines && follows(i, U"\n")) break;
      }
      return found;
    });
  }

  /// A formula behind optional white space, the last of which may be its own.
  Found spaced_latex(std::size_t from) {
    const std::size_t end = spaces(from);
    Found found = latex_.match(end, false);
    return !found && end > from ? latex_.match(end - 1, false) : found;
  }

  Found plain(std::size_t from, const PlainPieces::Accept& goes_on) {
    Found out = plain_.expression(from, goes_on);
    return out ? out : plain_.number(from, goes_on);
  }

  /// The same behind optional white space, as much as may be.
  Found spaced_plain(std::size_t from, const PlainPieces::Accept& goes_on) {
    Found found;
    for (std::size_t i = spaces(from) + 1; !found && i-- > from;) found = plain(i, goes_on);
    return found;
  }

  /// Behind "I hope" with an optional full stop and space before it; 0 where it does not follow.
  std::size_t hope(std::size_t i) const {
    i = past(i, U".");
    if (is_space(at(i))) ++i;
    return follows(i, U"I hope") ? i + 6 : 0;
  }

  std::size_t past(std::size_t i, std::u32string_view mark) const { return follows(i, mark) ? i + mark.size() : i; }

  static bool any(std::size_t /*end*/) { return true; }

  LatexPieces latex_;
  PlainPieces plain_;
  std::vector<MathCandidate> out_;
};

}  // namespace

std::vector<MathCandidate> math_candidates(std::u32string_view text, MathPlace place) {
  Finder finder(text);
  if (place == MathPlace::hope) finder.hoped();
  if (place == MathPlace::boxed) finder.boxed();
  if (place == MathPlace::answer_colon) finder.answers(U"answer:");
  if (place == MathPlace::answer) finder.answers(U"answer");
  if (place == MathPlace::anywhere) finder.anywhere();
  return finder.from_the_end();
}

}  // namespace tandem::eval
