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
  named_set,     // name: NAT, INTEGERS, RATIONALS, REALS, COMPLEXES, EMPTY
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

inline Expr make_expression(Expression expression) {
  return std::make_shared<const Expression>(std::move(expression));
}
inline Expr make_number(mpq_class number, bool is_float = false) {
  return make_expression({.number = std::move(number), .is_float = is_float});
}
/// Reads digits with commas between thousands, a point and an exponent: "1,234.5", "1E-3". Null for two points or an
/// exponent of more than 4 digits.
Expr read_number(std::string_view text);
inline Expr make_symbol(std::string name, bool is_complex) {
  return make_expression({.form = Form::symbol, .name = std::move(name), .is_complex = is_complex});
}
/// A node that its name and parts describe.
inline Expr make_node(Form form, std::string name, std::vector<Expr> parts) {
  return make_expression({.form = form, .name = std::move(name), .parts = std::move(parts)});
}
inline Expr make_node(Form form, std::vector<Expr> parts) {
  return make_node(form, "", std::move(parts));
}
inline Expr make_matrix(std::vector<Expr> parts, std::size_t columns) {
  return make_expression({.form = Form::matrix, .parts = std::move(parts), .columns = columns});
}
/// Sums and products of which one side is one already get longer instead of deeper; matrices are added and multiplied
/// by element. Nothing where the shapes do not fit.
Expr make_sum(const Expr& a, const Expr& b);
Expr make_product(const Expr& a, const Expr& b);
Expr make_negative(const Expr& a);  // -1 goes into a number
Expr make_power(const Expr& base, const Expr& exponent);
/// Elements that are the same tree count once; without any it is the empty set.
Expr make_finite_set(const std::vector<Expr>& elements);

inline bool is(const Expr& expression, Form form) {
  return expression->form == form;
}
bool is_integer(const Expr& expression);  // a number, written without a decimal point
bool is_set(const Expr& expression);
inline bool is_relation(const Expr& expression) {
  return is(expression, Form::relation) || is(expression, Form::chain);
}
/// The relations of a chain, or the one that it is.
inline std::vector<Expr> links_of(const Expr& relation) {
  return is(relation, Form::chain) ? relation->parts : std::vector<Expr>{relation};
}
/// +1 or -1 for infinity and its negative, 0 for everything else.
int infinite_sign(const Expr& expression);
/// Whether nothing but names is in it: x, f(x), xy, (x, y), 1/x.
bool is_of_symbols(const Expr& expression);

/// Same trees: what sympy's == says of trees that it has not evaluated. Parts of sets and sums may change places.
bool same_tree(const Expr& a, const Expr& b);
std::string text_of(const Expr& expression);  // unambiguous, of no other use

/// Names of the symbols, those that may be complex ending in "*".
std::set<std::string> symbols_of(const Expr& expression);

/// The value with every symbol at the `point`th of its values; these follow from the symbol's name alone. Functions
/// without a meaning have values that follow from name and arguments. NoValue where there is none, or it is too costly.
Value value_of(const Expr& expression, unsigned point);
std::optional<Value> value_at(const Expr& expression, unsigned point);  // nothing in place of NoValue

}  // namespace tandem::eval
