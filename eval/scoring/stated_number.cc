#include "eval/scoring/stated_number.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <numeric>
#include <string>
#include <vector>

#include "eval/scoring/python_text.h"
#include "eval/scoring/white_space.h"

namespace tandem::eval {
namespace {

bool is_figure(char c) {
  return c >= '0' && c <= '9';
}

std::size_t count_figures(std::string_view text) {
  const auto end = std::find_if_not(text.begin(), text.end(), is_figure);
  return static_cast<std::size_t>(end - text.begin());
}

struct Decimal {
  Rational value;
  std::size_t length = 0;  // bytes; 0: the text does not begin with one
};

/// The longest decimal that `text` begins with.
Decimal leading_decimal(std::string_view text, bool leading_zeros) {
  constexpr std::size_t kMostFigures = 18;
  std::size_t at = 0;
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) at = 1;
  std::string figures(text.substr(at, count_figures(text.substr(at))));
  at += figures.size();
  if (!figures.empty() && figures.size() <= 3) {
    while (at < text.size() && text[at] == ',' && count_figures(text.substr(at + 1)) == 3) {
      figures += text.substr(at + 1, 3);
      at += 4;
    }
  }
  if (figures.size() > 1 && figures[0] == '0' && !leading_zeros) return {};
  std::size_t places = 0;
  if (at < text.size() && text[at] == '.') {
    places = count_figures(text.substr(at + 1));
    figures += text.substr(at + 1, places);
    if (places > 0) at += 1 + places;
  }
  if (figures.empty() || figures.size() > kMostFigures) return {};
  Decimal decimal{{std::stoll(figures), 1}, at};
  for (; places > 0; --places) decimal.value.denominator *= 10;
  const std::int64_t common = std::gcd(decimal.value.numerator, decimal.value.denominator);
  decimal.value.numerator /= negative ? -common : common;
  decimal.value.denominator /= common;
  return decimal;
}

/// All of `text`, a whole number.
std::optional<std::int64_t> whole_number(std::string_view text) {
  const Decimal decimal = leading_decimal(text, /*leading_zeros=*/false);
  const bool is_whole =
      decimal.length > 0 && decimal.length == text.size() && text.find_first_of(".,") == std::string_view::npos;
  return is_whole ? std::optional(decimal.value.numerator) : std::nullopt;
}

std::optional<Rational> fraction(std::string_view above, std::string_view below, bool negative) {
  const std::optional<std::int64_t> a = whole_number(above), b = whole_number(below);
  if (!a || !b || *b == 0) return std::nullopt;
  const std::int64_t common = std::gcd(*a, *b), sign = negative != (*b < 0) ? -1 : 1;
  return Rational{sign * *a / common, (*b < 0 ? -*b : *b) / common};
}

/// Whether what stands behind a number is nothing but units.
bool only_units(std::string_view rest) {
  for (const std::string_view given : split_words(rest)) {
    std::string word;
    for (const char c : given) {
      const auto byte = static_cast<unsigned char>(c);
      if (std::isalpha(byte) == 0 && c != '.' && c != '-') return false;
      word += static_cast<char>(std::tolower(byte));
    }
    std::size_t letters = 0;
    std::string part;
    for (const char c : word + "-") {  // "half-hours" has two parts
      if (c != '-' && c != '.') {
        part += c;
        ++letters;
        continue;
      }
      if (changes_value(part)) return false;
      part.clear();
    }
    if (letters < 2 || !std::isalpha(static_cast<unsigned char>(word[0]))) return false;
  }
  return true;
}

/// Whether a text says more than one thing, or no equality: "x=4, y", "17 or x", "x \\neq y".
bool says_more(std::string_view text) {
  int depth = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (std::string_view("([{").find(c) != std::string_view::npos) ++depth;
    if (std::string_view(")]}").find(c) != std::string_view::npos) --depth;
    const bool within_number = i > 0 && is_figure(text[i - 1]) && count_figures(text.substr(i + 1)) == 3;
    if (c == ';' || c == '<' || c == '>' || (c == ',' && depth == 0 && !within_number)) return true;
  }
  for (const std::string_view relation :
       {"\\ne", "\\neq", "\\not", "\\le", "\\leq", "\\ge", "\\geq", "\\approx", "\\lt", "\\gt"}) {
    for (std::size_t at = 0; (at = text.find(relation, at)) != std::string_view::npos; at += relation.size()) {
      const std::size_t end = at + relation.size();
      if (end == text.size() || std::isalpha(static_cast<unsigned char>(text[end])) == 0) return true;
    }
  }
  const std::vector<std::string_view> words = split_words(text);
  return std::any_of(words.begin(), words.end(), [](std::string_view w) { return w == "or" || w == "and"; });
}

/// Behind the last "=" that is no part of another relation; all of a text that says more before it.
std::string_view right_side(std::string_view text) {
  const std::size_t at = text.rfind('=');
  if (at == std::string_view::npos || (at > 0 && std::string_view("!<>:").find(text[at - 1]) != std::string_view::npos))
    return text;
  return says_more(text.substr(0, at)) ? text : text.substr(at + 1);
}

}  // namespace

bool changes_value(std::string_view word) {
  constexpr auto kWords = std::to_array<std::string_view>(
      {"hundred", "hundreds",  "thousand", "thousands", "million",    "millions",   "mil",         "mn",
       "billion", "billions",  "bn",       "trillion",  "trillions",  "tn",         "lakh",        "lakhs",
       "crore",   "crores",    "dozen",    "dozens",    "gross",      "half",       "halves",      "third",
       "thirds",  "quarter",   "quarters", "fourth",    "fourths",    "fifth",      "fifths",      "sixth",
       "sixths",  "seventh",   "sevenths", "eighth",    "eighths",    "ninth",      "ninths",      "tenth",
       "tenths",  "twelfth",   "twelfths", "hundredth", "hundredths", "thousandth", "thousandths", "score",
       "times",   "plus",      "minus",    "over",      "pi",         "and",        "or",          "to",
       "mod",     "point",     "divided",  "less",      "below",      "grand",      "mio",         "squared",
       "cubed",   "factorial", "choose",   "than"});
  return std::find(kWords.begin(), kWords.end(), word) != kWords.end();
}

std::optional<Rational> plain_number(std::string_view text, bool leading_zeros) {
  const Decimal decimal = leading_decimal(text, leading_zeros);
  if (decimal.length > 0 && decimal.length == text.size()) return decimal.value;
  if (const std::size_t slash = text.find('/'); slash != std::string_view::npos)
    return fraction(text.substr(0, slash), text.substr(slash + 1), false);
  const bool negative = text.starts_with('-');
  if (negative) text.remove_prefix(1);
  constexpr std::string_view kFraction = "\\frac{";
  const std::size_t middle = text.find('}');
  if (!text.starts_with(kFraction) || middle == std::string_view::npos) return std::nullopt;
  const std::string_view above = text.substr(kFraction.size(), middle - kFraction.size());
  std::string_view below = text.substr(middle + 1);
  if (below.size() > 2 && below.starts_with('{') && below.ends_with('}')) {
    below = below.substr(1, below.size() - 2);
  } else if (below.size() != 1) {  // TeX takes one digit without braces
    return std::nullopt;
  }
  return fraction(above, below, negative);
}

std::optional<Rational> stated_number(std::string_view answer) {
  std::string text(answer);
  using Pair = std::pair<const char*, const char*>;
  for (const auto& [from, to] :
       {Pair{"\\dfrac", "\\frac"}, Pair{"\\tfrac", "\\frac"}, Pair{"\\$", ""},    Pair{"$", ""},
        Pair{"\u20ac", ""},        Pair{"\u00a3", ""},        Pair{"\\!", ""},    Pair{"\\,", ""},
        Pair{"\\;", " "},          Pair{"\\:", " "},          Pair{"\\ ", " "},   Pair{"~", " "},
        Pair{"{,}", ","},          Pair{"\\%", ""},           Pair{"%", ""},      Pair{"^{\\circ}", ""},
        Pair{"^\\circ", ""},       Pair{"\\degree", ""},      Pair{"\u00b0", ""}, Pair{"\u2212", "-"}})
    text = replaced(text, from, to);
  for (const std::string_view wrapper : {"\\text{", "\\textbf{", "\\mathbf{", "\\mathrm{", "\\mbox{", "\\textrm{"}) {
    for (std::size_t at = text.find(wrapper); at != std::string::npos; at = text.find(wrapper)) {
      const std::size_t end = text.find('}', at);
      if (end == std::string::npos) return std::nullopt;
      text[end] = ' ';
      text.replace(at, wrapper.size(), " ");
    }
  }
  std::string_view rest = strip(right_side(text));
  if (rest.ends_with('.')) rest = strip(rest.substr(0, rest.size() - 1));
  if (const auto whole = plain_number(rest, /*leading_zeros=*/true)) return whole;
  const Decimal decimal = leading_decimal(rest, /*leading_zeros=*/true);
  if (decimal.length == 0 || !only_units(rest.substr(decimal.length))) return std::nullopt;
  return decimal.value;
}

}  // namespace tandem::eval
