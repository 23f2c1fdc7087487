#include "eval/answers/math_answer.h"

#include <algorithm>

#include "eval/answers/latex_normal.h"
#include "eval/answers/latex_reader.h"
#include "eval/scoring/python_text.h"

namespace tandem::eval {
namespace {

struct NoExpression {};

/// Digits, "+-*/^()", points and blanks as sympy 1.14's parse_expr() reads them: Python's syntax.
class PlainReader {
 public:
  explicit PlainReader(std::string_view text) : rest_(text) { skip(); }

  Expr whole() {
    Expr out = sum();
    if (!rest_.empty()) throw NoExpression();
    return out;
  }

 private:
  void skip() { rest_.remove_prefix(std::min(rest_.find_first_not_of(" \t\r\n\f\v"), rest_.size())); }

  bool take(std::string_view word) {
    if (!rest_.starts_with(word)) return false;
    rest_.remove_prefix(word.size());
    skip();
    return true;
  }

  Expr sum() {
    Expr out = product();
    for (;;) {
      if (take("+")) {
        out = make_sum(out, product());
      } else if (take("-")) {
        out = make_sum(out, make_product(make_number(-1), product()));
      } else {
        return out;
      }
    }
  }

  Expr product() {
    const auto over = [](const Expr& a, const Expr& b) { return make_product(a, make_power(b, make_number(-1))); };
    Expr out = factor();
    for (;;) {
      if (rest_.starts_with("**")) throw NoExpression();
      if (take("*")) {
        out = make_product(out, factor());
      } else if (take("//")) {
        out = make_node(Form::call, "floor", {over(out, factor())});
      } else if (take("/")) {
        out = over(out, factor());
      } else {
        return out;
      }
    }
  }

  Expr factor() {
    if (take("+")) return nested(&PlainReader::factor);
    if (take("-")) return make_negative(nested(&PlainReader::factor));
    const Expr base = atom();
    return take("**") ? make_power(base, nested(&PlainReader::factor)) : base;
  }

  Expr nested(Expr (PlainReader::*inner)()) {
    constexpr int kMostDepth = 100;
    if (++depth_ > kMostDepth) throw NoExpression();
    Expr out = (this->*inner)();
    --depth_;
    return out;
  }

  Expr atom() {
    if (take("(")) {
      Expr out = nested(&PlainReader::sum);
      if (!take(")")) throw NoExpression();
      return out;
    }
    const std::string_view word = rest_.substr(0, rest_.find_first_not_of("0123456789."));
    const auto dots = static_cast<std::size_t>(std::count(word.begin(), word.end(), '.'));
    const bool is_octal = dots == 0 && word.starts_with('0') && word.find_first_not_of('0') != word.npos;
    if (dots > 1 || word.size() == dots || is_octal) throw NoExpression();
    rest_.remove_prefix(word.size());
    skip();
    return read_number(word);
  }

  std::string_view rest_;
  int depth_ = 0;
};

/// Null for what is no such expression, for parentheses or signs nested deeper than 100, and for more than 2000 bytes.
Expr read_plain(std::string_view text) {
  constexpr std::size_t kLongest = 2000;
  if (text.size() > kLongest) return nullptr;
  const std::string python = replaced(text, "^", "**");
  try {
    return PlainReader(python).whole();
  } catch (const NoExpression&) {
    return nullptr;
  }
}

struct Read {
  Expr expression;
  std::string text;
  std::size_t work = 0;  // the squares of the formulas' bytes, which reading takes time by
};

Expr percent_of(const Expr& number) {
  return is_relation(number) ? nullptr : make_node(Form::call, "percent", {number});  // sympy multiplies no relation
}

/// Several formulas that can all be read are one set.
Read read_formulas(const std::vector<LatexPiece>& pieces) {
  std::vector<Expr> read;
  std::string texts, first;
  std::size_t work = 0;
  for (const LatexPiece& piece : pieces) {
    const std::string text = normal_latex(to_utf8(piece.text), piece.is_open_box ? Boxes::last : Boxes::all);
    const bool is_short = text.size() <= kLongestFormula;
    Expr one = is_short ? read_latex(text) : nullptr;
    work += is_short ? text.size() * text.size() : text.size();
    read.push_back(one && piece.is_percent ? percent_of(one) : one);
    if (read.size() == 1) first = text;
    texts += (read.size() == 1 ? "" : " and ") + text;
  }
  if (read.size() == 1 || std::ranges::count(read, nullptr) > 0) return {read.front(), first, work};
  std::vector<Expr> elements;
  for (const Expr& one : read) {
    const std::vector<Expr> more = is(one, Form::finite_set) ? one->parts : std::vector<Expr>{one};
    elements.insert(elements.end(), more.begin(), more.end());
  }
  return {make_finite_set(elements), texts, work};
}

Read read_candidate(const MathCandidate& candidate) {
  if (!candidate.latex.empty()) return read_formulas(candidate.latex);
  if (candidate.number.empty()) return {read_plain(candidate.expression), candidate.expression, 0};
  const bool is_ascii = std::ranges::all_of(candidate.number, [](char c) { return c > 0; });
  if (!is_ascii || candidate.number.size() > kLongestFormula) return {nullptr, candidate.number, 0};
  const bool negative = candidate.number[0] == '-';
  Expr number = read_latex(candidate.number.substr(negative ? 1 : 0));
  if (number && negative) number = make_negative(number);
  if (number && candidate.is_percent) number = percent_of(number);
  return {number, candidate.number, 0};
}

}  // namespace

MathAnswer find_math_answer(std::string_view text) {
  MathAnswer answer;
  const std::u32string characters = code_points(text);
  constexpr std::size_t kMostWork = 40000000;
  std::size_t work = 0;
  for (const MathPlace place : kMathPlaces) {
    for (const MathCandidate& candidate : math_candidates(characters, place)) {
      if (work > kMostWork) return answer;
      Read read = read_candidate(candidate);
      work += read.work;
      if (answer.first.empty()) answer.first = read.text;
      if (!read.expression) continue;
      return {read.expression, read.text, answer.first, place};
    }
  }
  return answer;
}

MathAnswer math_reference(std::string_view formula) {
  return find_math_answer("$" + replaced(formula, "\n", " ") + "$");
}

}  // namespace tandem::eval
