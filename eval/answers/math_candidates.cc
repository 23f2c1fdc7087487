#include "eval/answers/math_candidates.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <iterator>

#include "eval/answers/latex_pieces.h"
#include "eval/answers/plain_pieces.h"

namespace tandem::eval {
namespace {

using Found = std::optional<MathCandidate>;

/// Whether `word`, of small letters, stands at `at` in any case.
bool has_word(std::u32string_view text, std::size_t at, std::u32string_view word) {
  if (at + word.size() > text.size()) return false;
  for (std::size_t i = 0; i < word.size(); ++i) {
    const char32_t c = text[at + i];
    if ((c >= U'A' && c <= U'Z' ? c + 32 : c) != word[i]) return false;
  }
  return true;
}

class Finder {
 public:
  explicit Finder(std::u32string_view text) : text_(text), pieces_(text), plain_(text) {}

  /// Matches that begin one behind another, as re.finditer() has them; only the last ones are kept.
  void each(const std::function<Found(std::size_t)>& at) {
    std::deque<MathCandidate> last;
    for (std::size_t i = 0; i <= text_.size();) {
      Found found = at(i);
      if (!found) {
        ++i;
        continue;
      }
      found->begin = i;
      i = std::max(found->end, i + 1);
      last.push_back(std::move(*found));
      if (last.size() > kMostMathCandidates) last.pop_front();
    }
    std::move(last.begin(), last.end(), std::back_inserter(out_));
  }

  Found latex(std::size_t at, bool boxed) {
    if (!pieces_.may_begin(at)) return std::nullopt;
    auto match = pieces_.match(at, boxed);
    if (!match) return std::nullopt;
    MathCandidate out;
    out.end = match->end;
    out.latex = std::move(match->pieces);
    return out;
  }

  /// A formula behind optional white space, the last of which may be its own.
  Found spaced_latex(std::size_t at) {
    const std::size_t end = spaces(at);
    Found found = latex(end, false);
    return !found && end > at ? latex(end - 1, false) : found;
  }

  Found plain(std::size_t at, const PlainPieces::Accept& goes_on) {
    Found out = plain_.expression(at, goes_on);
    return out ? out : plain_.number(at, goes_on);
  }

  /// "I hope" behind an optional full stop and space; the end, or 0.
  std::size_t hope(std::size_t at) const {
    if (is(at, U'.')) ++at;
    if (at < text_.size() && is_space(text_[at]) && !text_.substr(at).starts_with(U"I hope")) ++at;
    return text_.substr(at).starts_with(U"I hope") ? at + 6 : 0;
  }

  std::size_t spaces(std::size_t at) const {
    while (at < text_.size() && is_space(text_[at])) ++at;
    return at;
  }

  bool is(std::size_t at, char32_t c) const { return at < text_.size() && text_[at] == c; }

  // The kinds of places

  void hoped() {
    constexpr std::u32string_view kSaid = U"final answer is";
    const auto behind = [&](std::size_t i) {
      return is(i + kSaid.size(), U':') ? i + kSaid.size() + 1 : i + kSaid.size();
    };
    const auto ended = [&](Found found) {
      const std::size_t end = found ? hope(found->end) : 0;
      if (end == 0) return Found();
      found->end = end;
      return found;
    };
    each([&](std::size_t i) { return has_word(text_, i, kSaid) ? ended(spaced_latex(behind(i))) : Found(); });
    each([&](std::size_t i) {
      if (!has_word(text_, i, kSaid)) return Found();
      const std::size_t from = behind(i);
      for (std::size_t at = spaces(from) + 1; at-- > from;)
        if (Found found = ended(plain(at, [&](std::size_t end) { return hope(end) != 0; }))) return found;
      return Found();
    });
  }

  /// Tries places up to `most` characters behind "final answer" where " is" stands, with an optional colon.
  Found behind_is(std::size_t i, bool lines, const std::function<Found(std::size_t)>& there) {
    constexpr std::u32string_view kSaid = U"final answer";
    constexpr std::size_t kMost = 100;
    if (!has_word(text_, i, kSaid)) return std::nullopt;
    const std::size_t from = i + kSaid.size();
    for (std::size_t at = from; at <= std::min(from + kMost, text_.size()); ++at) {
      const std::size_t word = spaces(at);
      if (word > at && text_.substr(word).starts_with(U"is")) {
        if (Found found = there(is(word + 2, U':') ? word + 3 : word + 2)) return found;
      }
      if (!lines && is(at, U'\n')) break;
    }
    return std::nullopt;
  }

  void boxed() {
    each([&](std::size_t i) { return behind_is(i, true, [&](std::size_t at) { return spaced_latex(at); }); });
    each([&](std::size_t i) { return latex(i, true); });
    constexpr std::u32string_view kOpenBox = U"\\boxed{";
    const std::size_t box = text_.find(kOpenBox), close = text_.rfind(U'}');
    if (box != text_.npos && close != text_.npos && close > box + kOpenBox.size()) {
      MathCandidate whole;
      whole.begin = box;
      whole.end = close + 1;
      whole.latex.push_back({std::u32string(text_.substr(box, close + 1 - box)), false, true});
      out_.push_back(std::move(whole));
    }
    each([&](std::size_t i) { return behind_is(i, false, [&](std::size_t at) { return plain(at, any); }); });
  }

  void answers(bool colon) {
    constexpr std::u32string_view kSaid = U"answer";
    constexpr std::size_t kNear = 50, kFar = 100;
    const auto behind = [&](std::size_t i) -> std::size_t {
      if (!has_word(text_, i, kSaid)) return 0;
      if (!colon) return i + kSaid.size();
      return is(i + kSaid.size(), U':') ? i + kSaid.size() + 1 : 0;
    };
    each([&](std::size_t i) {
      const std::size_t from = behind(i);
      for (std::size_t at = from; from != 0 && at <= std::min(from + kNear, text_.size()); ++at)
        if (Found found = latex(at, false)) return found;
      return Found();
    });
    const auto no_equation = [&](std::size_t end) { return !is(spaces(end), U'='); };
    each([&](std::size_t i) {
      const std::size_t from = behind(i);
      if (from == 0) return Found();
      const std::u32string_view near = text_.substr(from, kFar);
      const std::size_t line = from + std::min(near.find(U'\n'), near.size());
      for (std::size_t at = line + 1; at-- > from;) {  // behind the last "="
        if (!is(at, U'=') || !plain_.may_begin(at + 1)) continue;
        for (std::size_t to = spaces(at + 1) + 1; to-- > at + 1;)
          if (Found found = plain(to, no_equation)) return found;
      }
      for (std::size_t at = from; at <= std::min(from + kNear, line); ++at)
        if (Found found = plain_.may_begin(at) ? plain(at, no_equation) : Found()) return found;
      return Found();
    });
  }

  void anywhere() {
    each([&](std::size_t i) { return latex(i, false); });
    each([&](std::size_t i) { return plain_.expression(i, any); });
    each([&](std::size_t i) { return plain_.number(i, any); });
  }

  std::vector<MathCandidate> from_the_end() {
    std::stable_sort(out_.begin(), out_.end(), [](const MathCandidate& a, const MathCandidate& b) {
      return a.end != b.end ? a.end > b.end : a.begin < b.begin;
    });
    if (out_.size() > kMostMathCandidates) out_.resize(kMostMathCandidates);
    return std::move(out_);
  }

 private:
  static bool any(std::size_t /*end*/) { return true; }

  std::u32string_view text_;
  LatexPieces pieces_;
  PlainPieces plain_;
  std::vector<MathCandidate> out_;
};

}  // namespace

std::vector<MathCandidate> math_candidates(std::u32string_view text, MathPlace place) {
  Finder finder(text);
  switch (place) {
    case MathPlace::hope:
      finder.hoped();
      break;
    case MathPlace::boxed:
      finder.boxed();
      break;
    case MathPlace::answer_colon:
    case MathPlace::answer:
      finder.answers(place == MathPlace::answer_colon);
      break;
    case MathPlace::anywhere:
      finder.anywhere();
      break;
  }
  return finder.from_the_end();
}

}  // namespace tandem::eval
