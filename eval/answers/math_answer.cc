#include "eval/answers/math_answer.h"

#include <algorithm>

#include "eval/answers/equivalence.h"
#include "eval/answers/latex_normal.h"
#include "eval/answers/latex_reader.h"
#include "eval/answers/plain_expression.h"
#include "eval/scoring/python_text.h"
#include "eval/scoring/white_space.h"

namespace tandem::eval {
namespace {

struct Read {
  Expr expression;
  std::string text;
  std::size_t work = 0;  // the squares of the formulas' bytes, which reading takes time by
};

Expr percent_of(const Expr& number) {
  const bool is_relation = is(number, Form::relation) || is(number, Form::chain);  // which sympy cannot multiply
  return is_relation ? nullptr : make_node(Form::call, "percent", {number});
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
  const bool all = std::all_of(read.begin(), read.end(), [](const Expr& one) { return one != nullptr; });
  if (read.size() == 1 || !all) return {read.front(), first, work};
  std::vector<Expr> elements;
  for (const Expr& one : read) {
    if (is(one, Form::finite_set)) {
      elements.insert(elements.end(), one->parts.begin(), one->parts.end());
    } else {
      elements.push_back(one);
    }
  }
  return {make_finite_set(elements), texts, work};
}

Read read_candidate(const MathCandidate& candidate) {
  if (!candidate.latex.empty()) return read_formulas(candidate.latex);
  if (candidate.number.empty()) return {read_plain(candidate.expression), candidate.expression, 0};
  const bool is_ascii = std::all_of(candidate.number.begin(), candidate.number.end(), [](char c) { return c > 0; });
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
      answer.expression = std::move(read.expression);
      answer.text = std::move(read.text);
      answer.place = place;
      return answer;
    }
  }
  return answer;
}

MathAnswer math_reference(std::string_view formula) {
  return find_math_answer("$" + replaced(formula, "\n", " ") + "$");
}

bool math_answers_equal(const MathAnswer& reference, const MathAnswer& answer) {
  if (reference.expression && answer.expression && is_right(reference.expression, answer.expression)) return true;
  const std::string_view wanted = strip(reference.first), given = strip(answer.first);
  return !wanted.empty() && wanted == given;
}

}  // namespace tandem::eval
