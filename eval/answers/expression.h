// Mathematical answers as trees: numbers, formulas, relations, sets, tuples and matrices. Nothing is simplified when a
// tree is made, except that a number divided by a number is one and signs go into numbers, as latex2sympy2_extended
// 1.11.0 makes its trees for Math-Verify.
#pragma once

#include <cstdint>
#include <gmpxx.h>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "eval/answers/value.h"

namespace tandem::eval {

enum class Form : std::uint8_t {
  number,        // number, is_float
  symbol,        // name, is_complex
  constant,      // name: pi, e, i, gamma, infinity, undefined (1/0)
  sum,           // parts
  product,       // parts
  power,         // base, exponent
  call,          // name, arguments; "f()" of a function that has no meaning of its own
  opaque,        // name, parts: integrals, limits, ... equal only to themselves
  matrix,        // parts row by row, columns
  finite_set,    // parts as they were written
  tuple,         // parts
  interval,      // two parts, left_open, right_open
  set_union,     // parts
  intersection,  // parts
  difference,    // two parts
  named_set,     // name: naturals, integers, rationals, reals, complexes, empty
  relation,      // two parts; name: =, !=, <, <=, >, >=
  chain,         // relations, each from the right side of the one before
};

struct Expression;
using Expr = std::shared_ptr<const Expression>;

struct Expression {
  Form form = Form::number;
  std::string name = {};
  std::vector<Expr> parts = {};
  mpq_class number = 0;
  bool is_float = false;    // written with a decimal point
  bool is_complex = false;  // of a symbol: may have values that are not real
  bool left_open = false, right_open = false;
  std::size_t columns = 0;
};

Expr make_number(mpq_class number, bool is_float = false);
/// A node that its name and parts describe.
Expr make_node(Form form, std::string name, std::vector<Expr> parts);
inline Expr make_node(Form form, std::vector<Expr> parts) {
  return make_node(form, "", std::move(parts));
}
/// Sums and products of which one side is one already get longer instead of deeper; matrices are added and multiplied
/// by element. Nothing where the shapes do not fit.
Expr make_sum(const Expr& a, const Expr& b);
Expr make_product(const Expr& a, const Expr& b);
Expr make_negative(const Expr& a);  // -1 goes into a number
Expr make_power(const Expr& base, const Expr& exponent);
Expr make_matrix(std::vector<Expr> parts, std::size_t columns);
/// Elements that are the same tree count once; without any it is the empty set.
Expr make_finite_set(const std::vector<Expr>& elements);

inline bool is(const Expr& expression, Form form) {
  return expression->form == form;
}
bool is_integer(const Expr& expression);  // a number, written without a decimal point
bool is_set(const Expr& expression);
/// Whether nothing but names is in it: x, f(x), xy, (x, y), 1/x.
bool is_of_symbols(const Expr& expression);

/// Same trees: what sympy's == says of trees that it has not evaluated. Parts of sets and sums may change places.
bool same_tree(const Expr& a, const Expr& b);
std::string text_of(const Expr& expression);  // unambiguous, of no other use

/// Names of the symbols, those that may be complex ending in "*".
std::set<std::string> symbols_of(const Expr& expression);

/// The value with every symbol at the `point`th of its values; these follow from the symbol's name alone. Functions
/// without a meaning have values that follow from name and arguments. Nothing where there is none, or it is too costly.
MaybeValue value_at(const Expr& expression, unsigned point);

}  // namespace tandem::eval
