#include "eval/answers/number_sets.h"

#include <algorithm>

#include "eval/answers/latex_symbols.h"

namespace tandem::eval {
namespace {

int compare_ends(const LineEnd& a, const LineEnd& b) {
  if (a.infinite != b.infinite) return a.infinite < b.infinite ? -1 : 1;
  return a.infinite != 0 ? 0 : compare_real(a.value, b.value);
}

const LineEnd kFromMinusInfinity{-1}, kToInfinity{1};

Line whole_line() {
  return {{kFromMinusInfinity, kToInfinity, true, true}};
}

/// In order, with those joined that meet.
Line joined(Line stretches) {
  std::sort(stretches.begin(), stretches.end(), [](const Stretch& a, const Stretch& b) {
    const int order = compare_ends(a.low, b.low);
    return order != 0 ? order < 0 : !a.low_open && b.low_open;
  });
  Line out;
  for (const Stretch& next : stretches) {
    if (!out.empty()) {
      Stretch& last = out.back();
      const int gap = compare_ends(next.low, last.high);
      if (gap < 0 || (gap == 0 && !(next.low_open && last.high_open))) {
        const int order = compare_ends(next.high, last.high);
        if (order > 0) {
          last.high = next.high;
          last.high_open = next.high_open;
        } else if (order == 0) {
          last.high_open = last.high_open && next.high_open;
        }
        continue;
      }
    }
    out.push_back(next);
  }
  return out;
}

Line complement(const Line& line) {
  Line out;
  LineEnd low = kFromMinusInfinity;
  bool low_open = true;
  for (const Stretch& s : line) {
    if (s.low.infinite == 0) out.push_back({low, s.low, low_open, !s.low_open});
    low = s.high;
    low_open = !s.high_open;
  }
  if (low.infinite <= 0) out.push_back({low, kToInfinity, low_open, true});
  std::erase_if(out, [](const Stretch& s) {
    const int order = compare_ends(s.low, s.high);
    return order > 0 || (order == 0 && (s.low_open || s.high_open));
  });
  return out;
}

Line united(Line a, const Line& b) {
  a.insert(a.end(), b.begin(), b.end());
  return joined(std::move(a));
}

Line common(const Line& a, const Line& b) {
  return complement(united(complement(a), complement(b)));
}

std::optional<LineEnd> end_of(const Expr& e) {
  if (const int sign = infinite_sign(e)) return LineEnd{sign};
  const MaybeValue value = symbols_of(e).empty() ? value_at(e, 0) : std::nullopt;
  if (!value || !value->is_real()) return std::nullopt;
  return LineEnd{0, *value};
}

/// Functions as symbols: f(x) becomes f_x.
Expr without_functions(const Expr& e) {
  if (is(e, Form::call) && e->name.ends_with("()")) return make_symbol(text_of(e), false);
  if (e->parts.empty()) return e;
  Expression out = *e;
  for (Expr& part : out.parts) part = without_functions(part);
  return std::make_shared<const Expression>(std::move(out));
}

Expr with_symbol(const Expr& e, const mpq_class& value) {
  if (is(e, Form::symbol)) return make_number(value);
  if (e->parts.empty()) return e;
  Expression out = *e;
  for (Expr& part : out.parts) part = with_symbol(part, value);
  return std::make_shared<const Expression>(std::move(out));
}

/// Where left - right of a relation is 0, and the sign of its slope.
struct Root {
  Value at;
  int slope = 1;
};

std::optional<Root> root_of(const Expr& relation) {
  const Expr difference = make_sum(relation->parts[0], make_negative(relation->parts[1]));
  if (!difference || symbols_of(difference).size() != 1) return std::nullopt;
  const auto at = [&](int x) { return value_at(with_symbol(difference, x), 0); };
  const MaybeValue zero = at(0), one = at(1);
  if (!zero || !one || !zero->is_real() || !one->is_real()) return std::nullopt;
  const MaybeValue negative = product_of(*zero, Value(mpq_class(-1)));
  const MaybeValue slope = negative ? sum_of(*one, *negative) : std::nullopt;
  if (!slope || compare_real(*slope, Value(mpq_class(0))) == 0) return std::nullopt;
  constexpr long kBits = 180;
  for (const int x : {-3, 7}) {
    const MaybeValue rise = product_of(*slope, Value(mpq_class(x))), given = at(x);
    const MaybeValue expected = rise ? sum_of(*zero, *rise) : std::nullopt;
    if (!expected || !given || !nearly_equal(*expected, *given, kBits)) return std::nullopt;
  }
  const MaybeValue inverse = power_of(*slope, Value(mpq_class(-1)));
  const MaybeValue root = inverse ? product_of(*negative, *inverse) : std::nullopt;
  if (!root) return std::nullopt;
  return Root{*root, compare_real(*slope, Value(mpq_class(0)))};
}

std::optional<Line> where_holds(const Expr& relation) {
  const std::optional<Root> root = root_of(relation);
  if (!root) return std::nullopt;
  const LineEnd end{0, root->at};
  const std::string& how = relation->name;
  const Line point{{end, end, false, false}};
  if (how == "=") return point;
  if (how == "!=") return complement(point);
  const bool below = (how[0] == '<') == (root->slope > 0), open = how.size() == 1;
  Stretch side{kFromMinusInfinity, kToInfinity, true, true};
  (below ? side.high : side.low) = end;
  (below ? side.high_open : side.low_open) = open;
  return Line(1, side);
}

}  // namespace

std::optional<Line> line_of(const Expr& set) {
  if (is(set, Form::named_set)) {
    if (set->name == "reals") return whole_line();
    return set->name == "empty" ? std::optional(Line()) : std::nullopt;
  }
  if (is(set, Form::interval)) {
    const auto low = end_of(set->parts[0]), high = end_of(set->parts[1]);
    if (!low || !high) return std::nullopt;
    return Line{{*low, *high, set->left_open, set->right_open}};
  }
  Line out;
  if (is(set, Form::finite_set)) {
    for (const Expr& element : set->parts) {
      const auto end = end_of(element);
      if (!end || end->infinite != 0) return std::nullopt;
      out.push_back({*end, *end, false, false});
    }
    return joined(std::move(out));
  }
  if (!is(set, Form::set_union) && !is(set, Form::intersection) && !is(set, Form::difference)) return std::nullopt;
  for (std::size_t i = 0; i < set->parts.size(); ++i) {
    const std::optional<Line> part = line_of(set->parts[i]);
    if (!part) return std::nullopt;
    if (i == 0) {
      out = *part;
    } else if (is(set, Form::set_union)) {
      out = united(std::move(out), *part);
    } else {
      out = common(out, is(set, Form::difference) ? complement(*part) : *part);
    }
  }
  return out;
}

std::optional<Line> line_where(const Expr& relation) {
  const Expr plain = without_functions(relation);
  if (symbols_of(plain).size() != 1) return std::nullopt;
  Line out = whole_line();
  for (const Expr& one : is(plain, Form::chain) ? plain->parts : std::vector<Expr>{plain}) {
    const std::optional<Line> part = where_holds(one);
    if (!part) return std::nullopt;
    out = common(out, *part);
  }
  return out;
}

bool same_line(const Line& a, const Line& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Stretch& x, const Stretch& y) {
    return compare_ends(x.low, y.low) == 0 && compare_ends(x.high, y.high) == 0 && x.low_open == y.low_open &&
           x.high_open == y.high_open;
  });
}

}  // namespace tandem::eval
