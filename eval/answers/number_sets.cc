#include "eval/answers/number_sets.h"

#include <algorithm>
#include <functional>

namespace tandem::eval {
namespace {

/// The place before or behind a number, where a set begins or ends.
struct Cut {
  Value number;
  bool behind = false;
};

int compare(const Cut& a, const Cut& b) {
  const int order = compare_real(a.number, b.number);
  return order != 0 ? order : static_cast<int>(a.behind) - static_cast<int>(b.behind);
}

struct NumberSet {
  bool begins_inside = false;  // at minus infinity
  std::vector<Cut> cuts = {};  // from the lowest to the highest
};

/// The numbers for which `belongs` holds of whether they are in `a` and in `b`.
template <class Belongs>
NumberSet combined(const NumberSet& a, const NumberSet& b, const Belongs& belongs) {
  bool in_a = a.begins_inside, in_b = b.begins_inside, inside = belongs(in_a, in_b);
  NumberSet out{inside};
  for (std::size_t i = 0, j = 0; i < a.cuts.size() || j < b.cuts.size();) {
    const int order = i == a.cuts.size() ? 1 : j == b.cuts.size() ? -1 : compare(a.cuts[i], b.cuts[j]);
    const Cut& cut = order <= 0 ? a.cuts[i] : b.cuts[j];
    in_a = in_a != (order <= 0);
    in_b = in_b != (order >= 0);
    i += order <= 0 ? 1 : 0;
    j += order >= 0 ? 1 : 0;
    if (belongs(in_a, in_b) == inside) continue;
    inside = !inside;
    out.cuts.push_back(cut);
  }
  return out;
}

Value real_value(const Expr& e) {
  if (!symbols_of(e).empty()) throw NoValue();
  Value value = value_of(e, 0);
  if (!value.is_real()) throw NoValue();
  return value;
}

/// The tree with `by(node)` in place of each node for which that is not null.
template <class By>
Expr with_nodes(const Expr& e, const By& by) {
  if (Expr other = by(e)) return other;
  if (e->parts.empty()) return e;
  Expression out = *e;
  for (Expr& part : out.parts) part = with_nodes(part, by);
  return std::make_shared<const Expression>(std::move(out));
}

/// Where a relation that is linear in its symbol holds.
NumberSet numbers_where(const Expr& relation) {
  const Expr difference = make_sum(relation->parts[0], make_negative(relation->parts[1]));
  if (!difference || symbols_of(difference).size() != 1) throw NoValue();
  const auto at = [&](int x) {
    return value_of(
        with_nodes(difference, [x](const Expr& e) { return is(e, Form::symbol) ? make_number(x) : nullptr; }), 0);
  };
  const Value zero = at(0), one = at(1);
  if (!zero.is_real() || !one.is_real()) throw NoValue();
  const Value slope = one - zero;
  const int sign = compare_real(slope, Value(0));
  if (sign == 0) throw NoValue();
  constexpr long kBits = 180;
  for (const int x : {-3, 7})
    if (!nearly_equal(zero + slope * Value(x), at(x), kBits)) throw NoValue();
  const Value root = zero * Value(-1) / slope;
  const std::string& how = relation->name;
  if (how == "=" || how == "!=") return {how == "!=", {{root, false}, {root, true}}};
  const bool below = (how[0] == '<') == (sign > 0), open = how.size() == 1;
  return {below, {{root, below != open}}};
}

NumberSet numbers_of(const Expr& e) {
  switch (e->form) {
    case Form::named_set:
      if (e->name != "REALS" && e->name != "EMPTY") throw NoValue();
      return {e->name == "REALS"};
    case Form::interval: {
      NumberSet out{infinite_sign(e->parts[0]) != 0};
      if (!out.begins_inside) out.cuts.push_back({real_value(e->parts[0]), e->left_open});
      if (infinite_sign(e->parts[1]) == 0) out.cuts.push_back({real_value(e->parts[1]), !e->right_open});
      return out;
    }
    case Form::finite_set: {
      NumberSet out;
      for (const Expr& element : e->parts) {
        const Value value = real_value(element);
        out = combined(out, {false, {{value, false}, {value, true}}}, std::logical_or<>());
      }
      return out;
    }
    case Form::set_union:
      return combined(numbers_of(e->parts[0]), numbers_of(e->parts[1]), std::logical_or<>());
    case Form::intersection:
      return combined(numbers_of(e->parts[0]), numbers_of(e->parts[1]), std::logical_and<>());
    case Form::difference:
      return combined(numbers_of(e->parts[0]), numbers_of(e->parts[1]), std::greater<>());
    case Form::relation:
    case Form::chain: {
      const Expr plain = with_nodes(e, [](const Expr& node) {
        const bool is_function = is(node, Form::call) && node->name.ends_with("()");
        return is_function ? make_symbol(text_of(node), false) : nullptr;
      });
      if (symbols_of(plain).size() != 1) throw NoValue();
      NumberSet out{true};
      for (const Expr& link : links_of(plain)) out = combined(out, numbers_where(link), std::logical_and<>());
      return out;
    }
    default:
      throw NoValue();
  }
}

}  // namespace

std::optional<bool> same_numbers(const Expr& a, const Expr& b) {
  try {
    const NumberSet first = numbers_of(a), second = numbers_of(b);
    return first.begins_inside == second.begins_inside &&
           std::equal(first.cuts.begin(), first.cuts.end(), second.cuts.begin(), second.cuts.end(),
                      [](const Cut& x, const Cut& y) { return compare(x, y) == 0; });
  } catch (const NoValue&) {
    return std::nullopt;
  }
}

}  // namespace tandem::eval
