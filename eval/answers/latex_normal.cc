#include "eval/answers/latex_normal.h"

#include <algorithm>
#include <array>
#include <vector>

#include "eval/answers/pattern.h"
#include "eval/scoring/python_text.h"
#include "eval/scoring/white_space.h"

namespace tandem::eval {
namespace {

using Parts = std::vector<std::string_view>;

/// Units that Math-Verify leaves out at the end of an answer, as regular expressions.
constexpr auto kUnits = std::to_array<std::string_view>({
    "integerpoint",
    "feet",
    "sue",
    "digit",
    "pound",
    "meal",
    "edge",
    "student",
    "children ticket",
    "multiple",
    "east",
    "degree",
    "mph",
    "kmph",
    "ft",
    "m square",
    " m east",
    "sq m",
    "deg",
    "mile",
    "q .",
    "monkey",
    "prime",
    "ratio",
    "profit of rs",
    "rd",
    "o",
    "gm",
    "p . m",
    "lb",
    "tile",
    "per",
    "dm",
    "lt",
    "gain",
    "ab",
    "way",
    "west",
    "a .",
    "b .",
    "c .",
    "d .",
    "e .",
    "f .",
    "g .",
    "h .",
    "t",
    "h",
    "no change",
    "men",
    "soldier",
    "pie",
    "bc",
    "excess",
    "st",
    "inches",
    "noon",
    "cent",
    "by",
    "gal",
    "kmh",
    "c",
    "acre",
    "rise",
    "a . m",
    "th",
    "\u03c0 r 2",
    "sq",
    "mark",
    "l",
    "toy",
    "coin",
    "sq . m",
    "gallon",
    "\u00b0 f",
    "profit",
    "minw",
    "yr",
    "women",
    "am",
    "pm",
    "hr",
    "cu cm",
    "square",
    "v \u00e2 \u20ac \u2122",
    "are",
    "rupee",
    "rounds",
    "cubic",
    "cc",
    "mtr",
    "s",
    "ohm",
    "number",
    "day",
    "hour",
    "minute",
    "min",
    "second",
    "man",
    "woman",
    "sec",
    "cube",
    "mt",
    "sq inch",
    "mp",
    "\u220f cm \u00b3",
    "hectare",
    "more",
    "unit",
    "cu . m",
    "cm 2",
    "rs .",
    "rs",
    "kg",
    "g",
    "month",
    "km",
    "m",
    "cm",
    "mm",
    "apple",
    "liter",
    "loss",
    "yard",
    "pure",
    "year",
    "increase",
    "decrease",
    "d",
    "less",
    "Surface",
    "litre",
    "pi sq m",
    "s .",
    "metre",
    "meter",
    "inch",
});

struct Replacement {
  std::string_view expression, by;  // \1 and \2 stand for groups
};

/// One after another, over the whole text.
constexpr auto kBrackets = std::to_array<Replacement>({
    {R"(\\m?left(\\\{|\{|\\\||\||\[|\(|\\rbracl|\\lgroup|\\lbrace|\\lbrack|\\l?vert|\\lceil|\\lfloor|\\langle|\\llcorner|\\ulcorner))",
     "\\1"},
    {R"(\\m?right(\\\}|\}|\\\||\||\]|\)|\\rbrack|\\rgroup|\\rbrace|\\r?vert|\\rceil|\\rfloor|\\rangle|\\lrcorner|\\urcorner))",
     "\\1"},
    {R"(\(([a-zA-Z0-9+\-*/\\ ]+?)\)_\{([a-zA-Z0-9+\-*/\\ ]+?)\})", "\\frac{(\\1)!}{((\\1)-(\\2))!}"},
    {R"(\\mathrm\{th\}|\\!\s*|\\text\s*\{\s*\}|\\\$|\$|(?<!\\)["']|\\displaystyle)", ""},
});

/// At each place the first that fits, in one pass.
constexpr auto kNames = std::to_array<Replacement>({
    {R"(\\math(?:rm|it|bf))", "\\text"},
    {R"(\\text(?:normal|bf|it|rm))", "\\text"},
    {R"(\\[dtc]frac)", "\\frac"},
    {R"(\s\.)", " 0."},
    {R"(\{\.)", "{0."},
    {R"(\~\=)", "\\approx"},
    {R"(\s*\{\s*,\s*\})", ","},
    {R"((?<![a-zA-Z]),?\s*(?:and|or)(?![a-zA-Z]))", ","},
    {R"(,?\s*\\text\{\s*(?:and|or)\s*\})", ","},
    {R"((?<!\\)\\\s)", " "},
    {R"(infinity)", "\\infty"},
    {R"(,?\\ldots)", " "},
    {R"(\s*\bpercentage\b)", "\\%"},
    {R"(\\text\{percentage\})", "%"},
    {R"(\s*\bpercent\b)", "\\%"},
    {R"(\\text\{percent\})", "%"},
    {R"(\s*\bpct\b)", "\\%"},
    {R"(\\text\{pct\})", "%"},
    {R"((?<!\\)inf(?!inity))", "\\infty"},
    {R"( sqrt)", "\\sqrt"},
});

constexpr auto kOperators = std::to_array<Replacement>({
    {R"(\^\s?\((.*?)\))", "^{\\1}"},
    {R"(sqrt\s?\((.*?)\))", "\\sqrt{\\1}"},
    {R"(\\frac\s?(\d)\s?(\d+))", "\\frac{\\1}{\\2}"},
    {R"(\\log_\s?(\d)\s?(\d+))", "\\log_{\\1}{\\2}"},
    {R"(\\frac\s?\{(.*?)\}\s?(\d))", "\\frac{\\1}{\\2}"},
    {R"(\\frac\s?(\d)\s?\{(.*?)\})", "\\frac{\\1}{\\2}"},
    {R"(\\sqrt\s?(\d))", "\\sqrt{\\1}"},
});

std::string filled(std::string_view by, const Parts& parts) {
  std::string out;
  for (std::size_t i = 0; i < by.size(); ++i) {
    const bool is_group = by[i] == '\\' && i + 1 < by.size() && (by[i + 1] == '1' || by[i + 1] == '2');
    if (is_group) {
      out += parts[static_cast<std::size_t>(by[++i] - '0')];
    } else {
      out += by[i];
    }
  }
  return out;
}

std::string with_replacement(const std::string& text, const Pattern& pattern, std::string_view by) {
  return pattern.replaced(text, [&](const Parts& parts) { return filled(by, parts); });
}

template <const auto& kTable>
std::string with_each(std::string text) {
  static const std::vector<Pattern> patterns = [] {
    std::vector<Pattern> all;
    for (const Replacement& one : kTable) all.emplace_back(one.expression);
    return all;
  }();
  for (std::size_t i = 0; i < kTable.size(); ++i) text = with_replacement(text, patterns[i], kTable[i].by);
  return text;
}

std::string with_names(const std::string& text) {
  static const Pattern pattern([] {
    std::string all;
    for (const Replacement& one : kNames) all += (all.empty() ? "(" : "|(") + std::string(one.expression) + ")";
    return all;
  }());
  return pattern.replaced(text, [](const Parts& parts) {
    const auto which = std::find_if(parts.begin() + 1, parts.end(), [](auto part) { return part.data() != nullptr; });
    return std::string(kNames.at(static_cast<std::size_t>(which - parts.begin() - 1)).by);
  });
}

std::string without_units(std::string text) {
  static const Pattern in_text(R"((\\(?:text|mbox)\{.*?\})(\^\d|\{\^\d\})?$)");
  static const Pattern words([] {
    std::string all;
    for (const std::string_view unit : kUnits) all += (all.empty() ? "" : "|") + std::string(unit);
    return "(\\d|\\}|\\s)\\s*(?:" + all + ")(?:s|es)?\\s*$";
  }());
  const std::string bare = with_replacement(text, in_text, "");
  if (!strip(bare).empty() && strip(bare) != text) text = strip(bare);
  for (int i = 0; i < 2; ++i) {
    std::string shorter = with_replacement(text, words, "\\1");
    if (!shorter.empty()) text = std::move(shorter);
  }
  return text;
}

// Braces as Hendrycks' math_equivalence.py (github.com/hendrycks/math, 985bdc1) puts them.

std::vector<std::u32string> split_at(const std::u32string& text, const std::u32string& separator) {
  std::vector<std::u32string> parts;
  std::size_t at = 0;
  for (std::size_t found = text.find(separator); found != text.npos; found = text.find(separator, at)) {
    parts.push_back(text.substr(at, found - at));
    at = found + separator.size();
  }
  parts.push_back(text.substr(at));
  return parts;
}

std::u32string without_front_space(const std::u32string& text) {
  return code_points([&] {
    const std::string bytes = to_utf8(text);
    std::string_view rest = bytes;
    while (const std::size_t space = leading_space(rest)) rest.remove_prefix(space);
    return std::string(rest);
  }());
}

std::u32string with_braces_of_roots(const std::u32string& text) {
  const std::vector<std::u32string> parts = split_at(text, U"\\sqrt");
  std::u32string out = parts.front();
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const std::u32string part = without_front_space(parts[i]);
    const bool is_open = part.empty() || part[0] == U'{' || part[0] == U'[';
    out += is_open ? U"\\sqrt" + part : U"\\sqrt{" + part.substr(0, 1) + U"}" + part.substr(1);
  }
  return out;
}

/// "\frac12" and "\frac1{2}"; where less than two characters follow one, all stays as it is.
std::u32string with_braces_of_fractions(const std::u32string& text) {
  const std::vector<std::u32string> parts = split_at(text, U"\\frac");
  std::u32string out = parts.front();
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const std::u32string part = without_front_space(parts[i]);
    out += U"\\frac";
    if (part.starts_with(U'{')) {
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

}  // namespace

std::string normal_latex(std::string_view given, Boxes boxes) {
  std::string text = boxed_content(given, boxes);
  if (text.size() > kLongestFormula) return std::string(strip(text));
  if (text.find("matrix") != text.npos || text.find("{array}") != text.npos) {
    static const Pattern row_space(R"(\\\\\s*\[\s*-?[\d.]+\s*(?:pt|em|ex|mm|cm|in|mu|sp|bp|pc)\s*\])");
    text = with_replacement(text, row_space, "\\\\");
  }
  using Pair = std::pair<const char*, const char*>;
  for (const auto& [from, to] :
       {Pair{"\\mathrm{T}", "T"}, Pair{"\\mathrm{d}", "d"}, Pair{"{\\rm d}", "d"},
        Pair{"\\left[\\begin{matrix}", "\\begin{bmatrix}"}, Pair{"\\end{matrix}\\right]", "\\end{bmatrix}"}})
    text = replaced(text, from, to);
  text = with_names(with_each<kBrackets>(text));
  text = replaced(replaced(text, "\n", " "), "\t", " ");
  if (text.find("matrix") == text.npos) {
    static const Pattern doubled(R"(\\\\(?=[a-zA-Z]))");
    text = with_replacement(text, doubled, "\\");
  }
  text = without_units(text);
  if (text.starts_with('.')) text = "0" + text;
  if (text == "0.5") text = "\\frac{1}{2}";
  text = replaced(with_each<kOperators>(text), " sqrt", "\\sqrt");
  std::u32string formula = code_points(text);
  formula = as_fraction(with_braces_of_fractions(with_braces_of_roots(formula)));
  return std::string(strip(to_utf8(formula)));
}

}  // namespace tandem::eval
