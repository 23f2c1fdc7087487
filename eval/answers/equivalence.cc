#include <algorithm>

#include "eval/answers/math_answer.h"
#include "eval/answers/number_sets.h"
#include "eval/scoring/python_text.h"

namespace tandem::eval {
namespace {

constexpr int kRounding = 6;            // decimal places of numbers with a point
constexpr unsigned kPoints = 8;         // at which formulas are compared
constexpr long kEqualBits = 150;        // of 256
constexpr std::size_t kMostParts = 60;  // of sets that are compared in any order

/// Math-Verify's sympy_expr_eq(), where sympy simplifies a difference to zero by exact arithmetic and by values at
/// several points. Not symmetric.
bool is_right(const Expr& wanted, const Expr& given);

bool is_equation(const Expr& e) {
  if (!is_relation(e)) return false;
  const std::vector<Expr> links = links_of(e);
  return std::all_of(links.begin(), links.end(), [](const Expr& link) { return link->name == "="; });
}

/// x=5, f(x)=5, x=y=5
bool is_assignment(const Expr& e) {
  return is_equation(e) && is_of_symbols(links_of(e).front()->parts[0]);
}

Expr right_side(const Expr& relation) {
  return links_of(relation).back()->parts[1];
}

/// A number, or one with a percent sign: itself, else null.
Expr plain_number(const Expr& e) {
  const Expr& inner = is(e, Form::call) && e->name == "percent" ? e->parts[0] : e;
  return is(inner, Form::number) ? inner : nullptr;
}

bool has_point(const Expr& e) {
  return e->is_float || std::any_of(e->parts.begin(), e->parts.end(), has_point);
}

/// In the arithmetic of 53 bits that sympy has for numbers with a point, whose differences are seldom 0.
std::optional<double> double_value(const Expr& e) {
  if (is(e, Form::number)) return e->number.get_d();
  if (is(e, Form::sum) || is(e, Form::product)) {
    double out = is(e, Form::sum) ? 0 : 1;
    for (const Expr& part : e->parts) {
      const std::optional<double> value = double_value(part);
      if (!value) return std::nullopt;
      out = is(e, Form::sum) ? out + *value : out * *value;
    }
    return out;
  }
  const auto value = value_at(e, 0);
  if (!value || !value->is_real()) return std::nullopt;
  return mpfr_get_d(value->complex().real(), MPFR_RNDN);
}

bool equal_constants(const Expr& a, const Expr& b) {
  const auto x = value_at(a, 0), y = value_at(b, 0);
  if (!x || !y) return false;
  const Expr first = plain_number(a), second = plain_number(b);
  const bool points = has_point(a) || has_point(b);
  if (!points && nearly_equal(*x, *y, kEqualBits)) return true;
  if (!first && !second) return equal_when_chopped(*x, *y);
  if (!points)
    return first && second && is_integer(first) && is_integer(second) && first->number == second->number;  // 9%, 9
  // sympy tells whole numbers from those with a point, and only rounds the latter.
  const auto is_whole = [](const Expr& e, const Value& value) { return !has_point(e) && value.is_integer(); };
  const bool rounds = (first && first->is_float) || (second && second->is_float);
  if (rounds && !is_whole(a, *x) && !is_whole(b, *y) && equal_when_rounded(*x, *y, kRounding)) return true;
  const std::optional<double> left = double_value(a), right = double_value(b);
  return left && right && *left == *right;
}

/// By values at points where both have one.
bool equal_formulas(const Expr& a, const Expr& b) {
  unsigned compared = 0;
  for (unsigned point = 0; point < kPoints; ++point) {
    const auto x = value_at(a, point), y = value_at(b, point);
    if (x.has_value() != y.has_value()) return false;
    if (!x) continue;
    if (!nearly_equal(*x, *y, kEqualBits) && !equal_when_chopped(*x, *y)) return false;
    ++compared;
  }
  return compared > 0;
}

bool equal_scalars(const Expr& a, const Expr& b) {
  return symbols_of(a).empty() && symbols_of(b).empty() ? equal_constants(a, b) : equal_formulas(a, b);
}

/// e*v*e*l*y*n is "evelyn".
std::optional<std::string> letters_of(const Expr& e) {
  if (!is(e, Form::product)) return std::nullopt;
  std::string out;
  for (const Expr& part : e->parts) {
    const bool is_e = is(part, Form::constant) && part->name == "e";
    if (!is_e && !is(part, Form::symbol)) return std::nullopt;
    out += is_e ? "e" : part->name;
  }
  return lower(out);
}

bool equal_symbols(const Expr& a, const Expr& b) {
  if (is(a, Form::symbol) && is(b, Form::symbol)) return a->name == b->name;
  const Expr& symbol = is(a, Form::symbol) ? a : b;
  const Expr& other = is(a, Form::symbol) ? b : a;
  if (is(other, Form::constant) && other->name == "e") return symbol->name == "e";
  if (is(other, Form::number) && !other->is_float) return symbol->name == other->number.get_str();
  return letters_of(other) == lower(symbol->name);
}

bool right_elements(const std::vector<Expr>& reference, const std::vector<Expr>& answer, bool ordered) {
  if (reference.size() != answer.size() || (!ordered && reference.size() > kMostParts)) return false;
  if (ordered) return std::equal(reference.begin(), reference.end(), answer.begin(), is_right);
  std::vector<Expr> rest = answer;
  for (const Expr& wanted : reference) {
    const auto found =
        std::find_if(rest.begin(), rest.end(), [&](const Expr& given) { return is_right(wanted, given); });
    if (found == rest.end()) return false;
    rest.erase(found);
  }
  return true;
}

bool is_collection(const Expr& e) {
  return is_set(e) || is(e, Form::tuple);
}

bool right_sets(const Expr& reference, const Expr& answer) {
  if (is(reference, Form::interval) && is(answer, Form::interval)) {
    return reference->left_open == answer->left_open && reference->right_open == answer->right_open &&
           right_elements(reference->parts, answer->parts, true);
  }
  const auto as_set = [](const Expr& e) { return is_collection(e) ? e : make_finite_set({e}); };
  const Expr wanted = as_set(reference), given = as_set(answer);
  if (same_tree(wanted, given)) return true;
  if (is_set(wanted) && is_set(given) && same_numbers(wanted, given).value_or(false)) return true;
  const auto is_finite = [](const Expr& e) { return is(e, Form::finite_set) || is(e, Form::tuple); };
  const bool ordered = is(wanted, Form::tuple);
  if (is_finite(wanted) && is_finite(given)) return right_elements(wanted->parts, given->parts, ordered);
  // (1,2) may be meant as a pair.
  const auto is_open = [](const Expr& e) { return is(e, Form::interval) && e->left_open && e->right_open; };
  if (is_open(wanted) && is_finite(given)) return right_elements(wanted->parts, given->parts, true);
  if (is_open(given) && is_finite(wanted)) return right_elements(wanted->parts, given->parts, ordered);
  return false;
}

/// left - right, where that is a formula.
Expr difference_of(const Expr& relation) {
  for (const Expr& side : relation->parts)
    if (is_collection(side) || is_relation(side)) return nullptr;
  const Expr negative = make_negative(relation->parts[1]);
  return negative ? make_sum(relation->parts[0], negative) : nullptr;
}

/// The sign of the number c of a = c * b; 0 where there is none.
int sign_of_ratio(const Expr& a, const Expr& b) try {
  const auto ratio_at = [&](unsigned point) { return value_of(a, point) / value_of(b, point); };
  Value ratio = ratio_at(0);
  for (unsigned point = 1; point < kPoints && ratio.is_real(); ++point) {
    const Value here = ratio_at(point);
    if (!here.is_real() || !nearly_equal(ratio, here, kEqualBits)) return 0;
    ratio = here;
  }
  return ratio.is_real() ? compare_real(ratio, Value(0)) : 0;
} catch (const NoValue&) {
  return 0;
}

bool right_relation(const Expr& reference, const Expr& answer) {
  const auto is_free = [](const Expr& e) { return e->name == "=" && symbols_of(e).empty(); };
  if (is_free(reference) && is_free(answer)) return true;  // sympy: neither has a solution
  const auto flipped = [](std::string name) {
    if (name[0] == '<' || name[0] == '>') name[0] = name[0] == '<' ? '>' : '<';
    return name;
  };
  const Expr wanted = difference_of(reference), given = difference_of(answer);
  if (!wanted || !given || symbols_of(wanted) != symbols_of(given)) return false;
  const int sign = sign_of_ratio(wanted, given);
  if (sign == 0) return false;
  if (reference->name == "=" || reference->name == "!=") return reference->name == answer->name;
  return answer->name == (sign > 0 ? reference->name : flipped(reference->name));
}

bool right_relations(const Expr& reference, const Expr& answer) {
  const std::vector<Expr> wanted = links_of(reference), given = links_of(answer);
  return reference->form == answer->form && wanted.size() == given.size() &&
         std::equal(wanted.begin(), wanted.end(), given.begin(), right_relation);
}

bool is_right(const Expr& wanted, const Expr& given) {
  Expr reference = wanted, answer = given;
  const auto shortened = [](const Expr& e) {
    return make_node(Form::relation, "=", {links_of(e).front()->parts[0], right_side(e)});
  };
  const bool reference_assigns = is_assignment(reference);
  if (reference_assigns) reference = shortened(reference);
  if (is_assignment(answer)) answer = shortened(answer);
  if (is_equation(answer) && !is_equation(reference)) {
    answer = right_side(answer);
  } else if (reference_assigns && !is_equation(answer)) {
    reference = right_side(reference);
  }
  if (is(reference, Form::constant) && reference->name == "undefined") return false;
  if (same_tree(reference, answer)) return true;
  if (is_relation(reference) && is_set(answer)) {  // 1 < x < 2 and (1,2)
    const std::optional<bool> same = same_numbers(reference, answer);
    return same ? *same : right_sets(reference, answer);
  }
  if (is_relation(reference) && is_relation(answer)) return right_relations(reference, answer);
  if (is_collection(reference) || is_collection(answer)) return right_sets(reference, answer);
  if (is_relation(reference) || is_relation(answer)) return false;
  if (is(reference, Form::symbol) || is(answer, Form::symbol)) return equal_symbols(reference, answer);
  if (is(reference, Form::matrix) && is(answer, Form::matrix)) {
    return reference->columns == answer->columns && reference->parts.size() == answer->parts.size() &&
           std::equal(reference->parts.begin(), reference->parts.end(), answer->parts.begin(), equal_scalars);
  }
  return equal_scalars(reference, answer);
}

}  // namespace

bool math_answers_equal(const MathAnswer& reference, const MathAnswer& answer) {
  if (reference.expression && answer.expression && is_right(reference.expression, answer.expression)) return true;
  const std::string_view wanted = strip(reference.first), given = strip(answer.first);
  return !wanted.empty() && wanted == given;
}

}  // namespace tandem::eval
