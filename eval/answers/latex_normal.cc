#include "eval/answers/latex_normal.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <vector>

#include "eval/answers/pattern.h"
#include "eval/scoring/python_text.h"

namespace tandem::eval {
namespace {

/// Units that Math-Verify leaves out at the end of an answer.
constexpr std::string_view kUnits =
    "integerpoint|feet|sue|digit|pound|meal|edge|student|children ticket|multiple|east|degree|mph|kmph|ft|m square|"
    " m east|sq m|deg|mile|q .|monkey|prime|ratio|profit of rs|rd|o|gm|p . m|lb|tile|per|dm|lt|gain|ab|way|west|a .|"
    "b .|c .|d .|e .|f .|g .|h .|t|h|no change|men|soldier|pie|bc|excess|st|inches|noon|cent|by|gal|kmh|c|acre|rise|"
    "a . m|th|\u03c0 r 2|sq|mark|l|toy|coin|sq . m|gallon|\u00b0 f|profit|minw|yr|women|am|pm|hr|cu cm|square|"
    "v \u00e2 \u20ac \u2122|are|rupee|rounds|cubic|cc|mtr|s|ohm|number|day|hour|minute|min|second|man|woman|sec|cube|"
    "mt|sq inch|mp|\u220f cm \u00b3|hectare|more|unit|cu . m|cm 2|rs .|rs|kg|g|month|km|m|cm|mm|apple|liter|loss|"
    "yard|pure|year|increase|decrease|d|less|Surface|litre|pi sq m|s .|metre|meter|inch";

struct Replacement {
  std::string_view expression, by;  // \1 and \2 stand for groups
};

/// One after another, over the whole text.
constexpr auto kLooks = std::to_array<Replacement>({
    {R"(\\mathrm\{T\})", "T"},
    {R"(\\mathrm\{d\})", "d"},
    {R"(\{\\rm d\})", "d"},
    {R"(\\left\[\\begin\{matrix\})", "\\begin{bmatrix}"},
    {R"(\\end\{matrix\}\\right\])", "\\end{bmatrix}"},
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
    {" sqrt", "\\sqrt"},
    // Braces as Hendrycks' math_equivalence.py (github.com/hendrycks/math, 985bdc1) puts them.
    {R"(\\sqrt(?:(?!\x{180e})[\s\x1c-\x1f])++)", "\\sqrt"},  // Python's white space, which U+180E is not
    {R"(\\sqrt(?!\\sqrt)([^{\[]))", "\\sqrt{\\1}"},
});

/// The same of fractions: "\frac12" and "\frac1{2}". Where less than two characters follow one, all stay as they are.
constexpr std::string_view kUnfinishedFraction =
    R"((?s)\\frac(?:(?!\x{180e})[\s\x1c-\x1f])*+(?!\{)(?!(?!\\frac).(?!\\frac).))";
constexpr auto kFractions = std::to_array<Replacement>({
    {R"(\\frac(?:(?!\x{180e})[\s\x1c-\x1f])++)", "\\frac"},
    {R"(\\frac([^{])\{)", "\\frac{\\1}{"},
    {R"(\\frac([^{])([^{]))", "\\frac{\\1}{\\2}"},
});

template <const auto& kTable>
std::string with_each(std::string text) {
  static const std::vector<Pattern> patterns = [] {
    std::vector<Pattern> all;
    for (const Replacement& one : kTable) all.emplace_back(one.expression);
    return all;
  }();
  for (std::size_t i = 0; i < kTable.size(); ++i) text = patterns[i].replaced(text, kTable[i].by);
  return text;
}

std::string with_names(const std::string& text) {
  static const Pattern pattern(alternatives(kNames, &Replacement::expression));
  return pattern.replaced(text,
                          [](const Pattern::Parts& match) { return std::string(kNames.at(group_of(match) - 1).by); });
}

std::string without_units(std::string text) {
  static const Pattern in_text(R"((\\(?:text|mbox)\{.*?\})(\^\d|\{\^\d\})?$)");
  static const Pattern words("(\\d|\\}|\\s)\\s*(?:" + std::string(kUnits) + ")(?:s|es)?\\s*$");
  const std::string bare(strip(in_text.replaced(text, "")));
  if (!bare.empty()) text = bare;
  for (int i = 0; i < 2; ++i) {
    std::string shorter = words.replaced(text, "\\1");
    if (!shorter.empty()) text = std::move(shorter);
  }
  return text;
}

/// Whether two boxes with this between them are parts of one answer.
bool stand_together(std::string_view between, bool differ) {
  constexpr std::size_t kNear = 10, kFar = 70;
  if (between.size() >= 4 * kFar) return false;
  const std::size_t length = code_points(between).size();
  if (length < kNear) return true;
  static const Pattern separator(R"(\b(?:and|or)\b|,|;)");
  return differ && length < kFar && separator.finds(between);
}

}  // namespace

std::size_t closing_brace(std::string_view text, std::size_t open) {
  std::size_t depth = 0;
  for (std::size_t i = open; i < text.size(); ++i) {
    if (text[i] == '{') ++depth;
    if (text[i] == '}' && --depth == 0) return i;
  }
  return text.npos;
}

std::string boxed_content(std::string_view text, Boxes boxes) {
  std::vector<std::string> found;  // from the last to the first
  std::string_view rest = text;    // before the boxes that were found
  for (std::size_t at = text.rfind('\\'); at != text.npos; at = at == 0 ? text.npos : text.rfind('\\', at - 1)) {
    const std::string_view here = text.substr(at);
    std::size_t open = at + (here.starts_with("\\boxed") ? 6 : 5);
    if (open == at + 5 && !here.starts_with("\\fbox")) continue;
    while (open < rest.size() && leading_space(text.substr(open)) > 0) open += leading_space(text.substr(open));
    if (open >= rest.size()) break;
    const std::size_t close = text[open] == '{' ? closing_brace(rest, open) : text.npos;
    if (close == text.npos) {
      if (found.empty()) found.emplace_back(text.substr(open));
      break;
    }
    const std::string content(strip(text.substr(open + 1, close - open - 1)));
    const bool differs = found.empty() || found.back() != content;
    if (boxes == Boxes::last && !found.empty() && !stand_together(rest.substr(close + 1), differs)) break;
    if (differs) found.push_back(content);
    rest = text.substr(0, at);
  }
  if (found.empty()) return std::string(text);
  std::reverse(found.begin(), found.end());
  return fmt::format("{}", fmt::join(found, ","));
}

std::string normal_latex(std::string_view given, Boxes boxes) {
  std::string text = boxed_content(given, boxes);
  if (text.size() > kLongestFormula) return std::string(strip(text));
  if (text.find("matrix") != text.npos || text.find("{array}") != text.npos) {
    static const Pattern row_space(R"(\\\\\s*\[\s*-?[\d.]+\s*(?:pt|em|ex|mm|cm|in|mu|sp|bp|pc)\s*\])");
    text = row_space.replaced(text, "\\\\");
  }
  text = replaced(replaced(with_names(with_each<kLooks>(text)), "\n", " "), "\t", " ");
  if (text.find("matrix") == text.npos) {
    static const Pattern doubled(R"(\\\\(?=[a-zA-Z]))");
    text = doubled.replaced(text, "\\");
  }
  text = without_units(text);
  if (text.starts_with('.')) text = "0" + text;
  if (text == "0.5") text = "\\frac{1}{2}";
  text = with_each<kOperators>(text);
  static const Pattern unfinished(kUnfinishedFraction);
  if (!unfinished.finds(text)) text = with_each<kFractions>(text);
  // Whole numbers as Python prints them, and reads them: with at most 4300 digits.
  static const Pattern ratio(R"(\A(0|-?[1-9][0-9]{0,4299})/(0|-?[1-9][0-9]{0,4299})\z)");
  return std::string(strip(ratio.replaced(text, "\\frac{\\1}{\\2}")));
}

}  // namespace tandem::eval
