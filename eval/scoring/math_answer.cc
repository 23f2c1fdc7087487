#include "eval/scoring/math_answer.h"

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

/// Where upstream's Python raises an exception.
struct Raised {};

template <typename Text>
Text replaced(const Text& text, const Text& from, const Text& to) {
  Text out;
  std::size_t at = 0;
  for (std::size_t found = text.find(from); found != Text::npos; found = text.find(from, at)) {
    out.append(text, at, found - at).append(to);
    at = found + from.size();
  }
  return out.append(text, at);
}

std::vector<std::u32string> split_at(const std::u32string& text, const std::u32string& separator) {
  std::vector<std::u32string> parts;
  std::size_t at = 0;
  for (std::size_t found = text.find(separator); found != std::u32string::npos; found = text.find(separator, at)) {
    parts.push_back(text.substr(at, found - at));
    at = found + separator.size();
  }
  parts.push_back(text.substr(at));
  return parts;
}

std::u32string without_units(const std::u32string& text) {
  const std::vector<std::u32string> parts = split_at(text, U"\\text{ ");
  if (parts.size() > 2) throw Raised();
  return parts.front();
}

std::u32string with_braces_of_roots(const std::u32string& text) {
  const std::vector<std::u32string> parts = split_at(text, U"\\sqrt");
  std::u32string out = parts.front();
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const std::u32string& part = parts[i];
    if (part.empty()) throw Raised();
    out += part[0] == U'{' ? U"\\sqrt" + part : U"\\sqrt{" + part.substr(0, 1) + U"}" + part.substr(1);
  }
  return out;
}

/// "\frac12" and "\frac1{2}"; a fraction that ends the text leaves all as it is.
std::u32string with_braces_of_fractions(const std::u32string& text) {
  const std::vector<std::u32string> parts = split_at(text, U"\\frac");
  std::u32string out = parts.front();
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const std::u32string& part = parts[i];
    if (part.empty()) throw Raised();
    out += U"\\frac";
    if (part[0] == U'{') {
      out += part;
      continue;
    }
    if (part.size() < 2) return text;
    out += U"{" + part.substr(0, 1) + U"}";
    out += part[1] == U'{' ? part.substr(1) : U"{" + part.substr(1, 1) + U"}" + part.substr(2);
  }
  return out;
}

/// A whole number as Python prints it.
bool is_printed_integer(std::u32string_view text) {
  constexpr std::size_t kPythonsMost = 4300;  // digits that int() takes
  const bool negative = text.starts_with(U'-');
  if (negative) text.remove_prefix(1);
  if (text.empty() || text.size() > kPythonsMost) return false;
  if (!std::all_of(text.begin(), text.end(), [](char32_t c) { return c >= U'0' && c <= U'9'; })) return false;
  return text[0] != U'0' || (text.size() == 1 && !negative);
}

std::u32string as_fraction(const std::u32string& text) {
  const std::vector<std::u32string> parts = split_at(text, U"/");
  if (parts.size() != 2 || !is_printed_integer(parts[0]) || !is_printed_integer(parts[1])) return text;
  return U"\\frac{" + parts[0] + U"}{" + parts[1] + U"}";
}

/// In upstream's order, which matters.
std::u32string hendrycks_form(std::string_view answer) {
  std::u32string text = code_points(answer);
  using Pair = std::pair<const char32_t*, const char32_t*>;
  for (const auto& [from, to] :
       {Pair{U"\n", U""}, Pair{U"\\!", U""}, Pair{U"\\\\", U"\\"}, Pair{U"tfrac", U"frac"}, Pair{U"dfrac", U"frac"},
        Pair{U"\\left", U""}, Pair{U"\\right", U""}, Pair{U"^{\\circ}", U""}, Pair{U"^\\circ", U""}, Pair{U"\\$", U""}})
    text = replaced<std::u32string>(text, from, to);
  text = without_units(text);
  for (const auto& [from, to] : {Pair{U"\\%", U""}, Pair{U" .", U" 0."}, Pair{U"{.", U"{0."}})
    text = replaced<std::u32string>(text, from, to);
  if (text.empty()) return text;
  if (text[0] == U'.') text.insert(text.begin(), U'0');
  if (const auto sides = split_at(text, U"="); sides.size() == 2 && sides[0].size() <= 2) text = sides[1];
  text = with_braces_of_fractions(replaced<std::u32string>(with_braces_of_roots(text), U" ", U""));
  return as_fraction(text == U"0.5" ? U"\\frac{1}{2}" : text);
}

std::optional<std::u32string> form_of(std::string_view answer) {
  try {
    return hendrycks_form(answer);
  } catch (const Raised&) {
    return std::nullopt;
  }
}

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

/// Words behind a number that make it another one.
bool changes_value(const std::string& word) {
  constexpr auto kWords = std::to_array<std::string_view>(
      {"hundred", "hundreds", "thousand", "thousands", "million",    "millions",   "mil",         "mn",
       "billion", "billions", "bn",       "trillion",  "trillions",  "tn",         "lakh",        "lakhs",
       "crore",   "crores",   "dozen",    "dozens",    "gross",      "half",       "halves",      "third",
       "thirds",  "quarter",  "quarters", "fourth",    "fourths",    "fifth",      "fifths",      "sixth",
       "sixths",  "seventh",  "sevenths", "eighth",    "eighths",    "ninth",      "ninths",      "tenth",
       "tenths",  "twelfth",  "twelfths", "hundredth", "hundredths", "thousandth", "thousandths", "score",
       "times",   "plus",     "minus",    "over",      "pi",         "and",        "or",          "to",
       "mod",     "squared",  "cubed",    "factorial", "choose",     "than"});
  return std::find(kWords.begin(), kWords.end(), word) != kWords.end();
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

/// Behind the last "=" that is no part of another relation.
std::string_view right_side(std::string_view text) {
  const std::size_t at = text.rfind('=');
  if (at == std::string_view::npos || (at > 0 && std::string_view("!<>:").find(text[at - 1]) != std::string_view::npos))
    return text;
  return text.substr(at + 1);
}

}  // namespace

bool hendrycks_equal(std::string_view first, std::string_view second) {
  const auto a = form_of(first), b = form_of(second);
  return a && b ? *a == *b : first == second;
}

std::optional<Rational> plain_number(std::string_view text, bool leading_zeros) {
  const Decimal decimal = leading_decimal(text, leading_zeros);
  if (decimal.length > 0 && decimal.length == text.size()) return decimal.value;
  if (const std::size_t slash = text.find('/'); slash != std::string_view::npos)
    return fraction(text.substr(0, slash), text.substr(slash + 1), false);
  const bool negative = text.starts_with('-');
  if (negative) text.remove_prefix(1);
  constexpr std::string_view kFraction = "\\frac{";
  const std::size_t middle = text.find("}{");
  if (!text.starts_with(kFraction) || !text.ends_with('}') || middle == std::string_view::npos) return std::nullopt;
  const std::string_view below = text.substr(middle + 2);
  return fraction(text.substr(kFraction.size(), middle - kFraction.size()), below.substr(0, below.size() - 1),
                  negative);
}

std::optional<Rational> stated_number(std::string_view answer) {
  std::string text(answer);
  using Pair = std::pair<const char*, const char*>;
  for (const auto& [from, to] :
       {Pair{"\\dfrac", "\\frac"}, Pair{"\\tfrac", "\\frac"}, Pair{"\\$", ""}, Pair{"$", ""}, Pair{"\u20ac", ""},
        Pair{"\u00a3", ""}, Pair{"\\!", ""}, Pair{"\\,", ""}, Pair{"\\;", " "}, Pair{"\\:", " "}, Pair{"\\ ", " "},
        Pair{"~", " "}, Pair{"{,}", ","}, Pair{"\\%", ""}, Pair{"%", ""}, Pair{"^{\\circ}", ""}, Pair{"^\\circ", ""}})
    text = replaced<std::string>(text, from, to);
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

bool math_equal(std::string_view first, std::string_view second) {
  const auto a = form_of(first), b = form_of(second);
  if (!a || !b) return first == second;
  if (*a == *b) return !a->empty() || first == second;
  const auto number = [](const std::u32string& form) {
    const std::string text = to_utf8(form);
    std::string_view rest = text;
    if (rest.size() > 1 && rest.starts_with('$') && rest.ends_with('$')) rest = rest.substr(1, rest.size() - 2);
    if (rest.ends_with('.')) rest.remove_suffix(1);
    return plain_number(rest);
  };
  const std::optional<Rational> x = number(*a), y = number(*b);
  return x && y && *x == *y;
}

}  // namespace tandem::eval
