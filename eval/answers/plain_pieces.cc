#include "eval/answers/plain_pieces.h"

#include <algorithm>

namespace tandem::eval {
namespace {

constexpr std::u32string_view kPlainOperators = U"+-*\u00d7/^()\u00f7";
constexpr std::u32string_view kCurrencies =
    U"$\u20ac\u00a3\u00a5\u20b9\u20bd\u20aa\u20a9\u20ab\u0e3f\u20a1\u20a2\u20a3\u20a4\u20a5\u20a6\u20a7\u20a8\u20ad"
    U"\u20ae\u20af\u20b0\u20b1\u20b2\u20b3\u20b4\u20b5\u20b6\u20b7\u20b8\u20ba\u20bb\u20bc\u20be\u20bf";

bool is_operator(char32_t c) {
  return kPlainOperators.find(c) != kPlainOperators.npos;
}

bool belongs_to_expression(char32_t c) {
  return is_digit(c) || c == U'.' || is_space(c) || is_operator(c);
}

/// One try at one place.
class PlainMatcher : Characters {
 public:
  PlainMatcher(std::u32string_view text, std::size_t begin, const PlainPieces::Accept& accept)
      : Characters(text), begin_(begin), accept_(accept) {}

  /// Runs `tail` behind the text's beginning, a space or "=", and an optional "**".
  template <typename Tail>
  std::optional<MathCandidate> prefixed(const Tail& tail) {
    const bool is_behind = is_space(at(begin_)) || at(begin_) == U'=';
    if (!(begin_ == 0 && starred(0, tail)) && !(is_behind && starred(begin_ + 1, tail))) return std::nullopt;
    return std::move(found_);
  }

  /// Where the expression's first digit is; nothing where there is none.
  std::optional<std::size_t> first_digit(std::size_t from) const {
    std::size_t digit = from;
    if (at(digit) == U'-') ++digit;
    if (at(digit) == U'(') ++digit;
    if (at(digit) == U'-') ++digit;
    return is_digit(at(digit)) ? std::optional(digit) : std::nullopt;
  }

  bool expression(std::size_t from, std::size_t first_operator, std::size_t end) {
    for (; end >= first_operator + 2; --end) {
      if (at(end) == U')' && expression_ends(from, end + 1)) return true;
      if (expression_ends(from, end)) return true;
    }
    return false;
  }

  bool number(std::size_t from) {
    return (kCurrencies.find(at(from)) != kCurrencies.npos && bare_number(from + 1)) || bare_number(from);
  }

 private:
  template <typename Tail>
  bool starred(std::size_t from, const Tail& tail) {
    return (follows(from, U"**") && tail(from + 2)) || tail(from);
  }

  std::string piece(std::size_t from, std::size_t to) const { return to_utf8(text_.substr(from, to - from)); }

  bool accepted(std::size_t end) {
    found_.begin = begin_;
    found_.end = end;
    return accept_(end);
  }

  bool expression_ends(std::size_t from, std::size_t end) {
    const auto suffixed = [&](std::size_t i) {
      constexpr std::u32string_view kMarks = U".,:)$";
      const bool is_mark = is_space(at(i)) || kMarks.find(at(i)) != kMarks.npos;
      if (!is_mark && i != text_.size()) return false;
      if (!accepted(is_mark ? i + 1 : i)) return false;
      found_.expression = piece(from, end);
      return true;
    };
    return (follows(end, U"**") && suffixed(end + 2)) || suffixed(end);
  }

  /// The number's whole part from `from` to `point` and its decimals to `end`, with and without a percentage behind it.
  bool number_ends(std::size_t from, std::size_t point, std::size_t end) {
    const auto take = [&](std::size_t behind, bool is_percent) {
      if (!accepted(behind)) return false;
      std::string whole = piece(from, point), decimals = piece(point, end);
      std::erase_if(whole, [](char c) { return c == ',' || c == ' '; });
      whole.erase(0, whole.find_first_not_of('0'));
      std::replace(decimals.begin(), decimals.end(), ',', '.');
      found_.number = (whole.empty() ? "0" : whole) + decimals;
      found_.is_percent = is_percent;
      return true;
    };
    const std::size_t word = spaces(end);
    for (const std::u32string_view percent :
         {U"%", U"percent", U"Percent", U"percentage", U"Percentage", U"pct", U"Pct"})
      if (follows(word, percent) && take(word + percent.size(), true)) return true;
    return take(end, false);
  }

  bool bare_number(std::size_t from) {
    if (from > 0 && is_digit(at(from - 1))) return false;
    const std::size_t first = at(from) == U'-' ? from + 1 : from, end = digits(first);
    if (grouped(from, first)) return true;
    if ((end != first && decimals(from, end, U".,")) || decimals(from, from, U".")) return true;
    for (std::size_t i = end; i > first; --i)
      if (number_ends(from, i, i)) return true;
    return false;
  }

  /// One of these marks and digits behind it, as many as may be.
  bool decimals(std::size_t from, std::size_t point, std::u32string_view marks) {
    if (marks.find(at(point)) == marks.npos) return false;
    for (std::size_t i = digits(point + 1); i > point + 1; --i)
      if (number_ends(from, point, i)) return true;
    return false;
  }

  /// 1,234.5 and 1 234
  bool grouped(std::size_t from, std::size_t first) {
    if (at(first) < U'1' || at(first) > U'9') return false;
    std::size_t end = first + 1;
    while (end < first + 3 && is_digit(at(end))) ++end;
    std::vector<std::size_t> ends;
    for (std::size_t i = end; (at(i) == U',' || at(i) == U' ') && digits(i + 1) >= i + 4; i += 4) ends.push_back(i + 4);
    return std::any_of(ends.rbegin(), ends.rend(),
                       [&](std::size_t last) { return decimals(from, last, U".") || number_ends(from, last, last); });
  }

  std::size_t begin_;
  const PlainPieces::Accept& accept_;
  MathCandidate found_;
};

}  // namespace

PlainPieces::PlainPieces(std::u32string_view text)
    : text_(text), run_ends_(text.size() + 1), next_operators_(text.size() + 1) {
  auto end = static_cast<std::uint32_t>(text.size()), next = end;
  run_ends_[end] = next_operators_[end] = end;
  for (std::uint32_t i = end; i-- > 0;) {
    if (!belongs_to_expression(text[i])) end = i;
    if (is_operator(text[i])) next = i;
    run_ends_[i] = end;
    next_operators_[i] = next;
  }
}

std::optional<MathCandidate> PlainPieces::expression(std::size_t at, const Accept& accept) const {
  PlainMatcher matcher(text_, at, accept);
  return matcher.prefixed([&](std::size_t from) {
    const auto digit = matcher.first_digit(from);
    if (!digit) return false;
    const std::size_t end = run_ends_[*digit], first_operator = next_operators_[*digit];
    return first_operator + 2 <= end && matcher.expression(from, first_operator, end);
  });
}

std::optional<MathCandidate> PlainPieces::number(std::size_t at, const Accept& accept) const {
  PlainMatcher matcher(text_, at, accept);
  return matcher.prefixed([&](std::size_t from) { return matcher.number(from); });
}

}  // namespace tandem::eval
