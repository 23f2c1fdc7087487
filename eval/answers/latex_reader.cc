#include "eval/answers/latex_reader.h"

#include <algorithm>
#include <array>

#include "eval/answers/latex_formula.h"
#include "eval/answers/pattern.h"
#include "eval/scoring/python_text.h"

namespace tandem::eval {
namespace {

using Exprs = std::vector<Expr>;

constexpr auto kRelations = std::to_array<std::pair<std::string_view, const char*>>(
    {{"ASSIGN", "="}, {"EQUAL", "="}, {"LT", "<"}, {"LE", "<="}, {"GT", ">"}, {"GE", ">="}, {"NE", "!="}});

/// -1, 0 or 1 where both are real numbers or infinite.
std::optional<int> order_of(const Expr& a, const Expr& b) {
  const int first = infinite_sign(a), second = infinite_sign(b);
  if (!symbols_of(a).empty() || !symbols_of(b).empty()) return std::nullopt;
  const auto x = value_at(a, 0), y = value_at(b, 0);
  const bool x_is_real = x && x->is_real(), y_is_real = y && y->is_real();
  if ((first == 0 && !x_is_real) || (second == 0 && !y_is_real)) return std::nullopt;
  if (first != second) return first < second ? -1 : 1;
  return x && y ? compare_real(*x, *y) : 0;
}

class Reader {
 public:
  explicit Reader(bool is_complex) : is_complex_(is_complex) {}

  Expr answer(const LatexNode& node, std::string_view latex) {
    if (const LatexNode* claim = node.child("claim")) return of_claim(*claim);
    if (const LatexNode* elements = node.child("elements")) {
      static const Pattern number_with_commas("^\\s*-?\\d{1,3}(,\\d{3})+(\\.\\d+)?\\s*$");
      if (number_with_commas.finds(latex)) {
        const std::string text = replaced(replaced(latex, " ", ""), "-", "");
        if (text.starts_with('0')) return required(read_number(replaced(text, ",", ".")));
        const Expr number = required(read_number(text));
        return latex.find('-') == std::string_view::npos ? number : make_negative(number);
      }
      return set_or_single(rows(*elements));
    }
    const LatexNode& assigned = *node.child("assigned");
    const Expr values = set_or_single(rows(*assigned.child("values")));
    return make_node(Form::relation, "=", {of_names(*assigned.child("names")), values});
  }

 private:
  Expr formula(const LatexNode& node) const { return read_formula(node, is_complex_); }

  /// Elements between commas, for each stretch between semicolons.
  std::vector<Exprs> rows(const LatexNode& node) {
    std::vector<Exprs> out;
    for (std::size_t i = 0; i < node.children.size(); i += 2) {
      const LatexNode& row = *node.children[i];
      Exprs& items = out.emplace_back();
      for (std::size_t j = 0; j < row.children.size(); j += 2) {
        const Exprs more = of_item(*row.children[j]);
        items.insert(items.end(), more.begin(), more.end());
      }
    }
    return out;
  }

  static Exprs flat(const std::vector<Exprs>& rows) {
    Exprs out;
    for (const Exprs& row : rows) out.insert(out.end(), row.begin(), row.end());
    return out;
  }

  static Expr set_or_single(const std::vector<Exprs>& rows) {
    if (rows.size() == 1 && rows[0].size() == 1) return rows[0][0];
    if (rows.size() == 1) return make_finite_set(rows[0]);
    const bool singles = std::all_of(rows.begin(), rows.end(), [](const Exprs& row) { return row.size() == 1; });
    if (singles) return make_finite_set(flat(rows));
    Exprs tuples;
    for (const Exprs& row : rows) tuples.push_back(make_node(Form::tuple, row));
    return make_finite_set(tuples);
  }

  Exprs of_item(const LatexNode& node) {
    if (const LatexNode* both = node.child("plus_minus")) {
      const auto sides = both->all("expr");
      const Expr last = formula(*sides.back());
      const bool is_exact = is(last, Form::number) && !last->is_float;
      const Expr negative = is_exact ? make_negative(last) : required(make_product(make_number(-1), last));
      if (sides.size() == 1) return {negative, last};
      const Expr first = formula(*sides[0]);
      return {required(make_sum(first, last)), required(make_sum(first, negative))};
    }
    if (const LatexNode* set = node.child("set_atom")) return {of_set_atom(*set)};
    if (const LatexNode* relation = node.child("relation")) return {of_relation(*relation)};
    return {formula(*node.child("expr"))};
  }

  Expr of_names(const LatexNode& node) {
    Exprs names;
    for (const LatexNode* one : node.all("symbol")) names.push_back(read_symbol(*one, is_complex_));
    return names.size() == 1 ? names[0] : make_node(Form::tuple, names);
  }

  Expr of_claim(const LatexNode& node) {
    const auto sides = node.all("claimed");
    Expr out = of_claimed(*sides[0]);
    if (sides.size() == 1) return out;
    return make_node(Form::opaque, "subset", {out, of_claimed(*sides[1])});
  }

  Expr of_claimed(const LatexNode& node) {
    if (const LatexNode* set = node.child("set_minus")) return of_operation(*set);
    const Expr left = of_names(*node.child("names"));
    const Expr equal = make_node(Form::relation, "=", {left, of_claim(*node.child("claim"))});
    return node.has("NOTIN") ? make_node(Form::opaque, "not", {equal}) : equal;
  }

  /// A difference, union or intersection of sets; tuples in the latter two are sets.
  Expr of_operation(const LatexNode& node) {
    if (node.rule == "set_group")
      return node.has("set_minus") ? of_operation(*node.child("set_minus")) : of_set_atom(*node.child("set_atom"));
    const Form form = node.rule == "set_minus"   ? Form::difference
                      : node.rule == "set_union" ? Form::set_union
                                                 : Form::intersection;
    Expr out;
    for (const auto& child : node.children) {
      if (child->rule == "MINUS" || child->rule == "UNION" || child->rule == "CAP") continue;
      Expr next = of_operation(*child);
      const bool alone = node.children.size() == 1;
      if (!alone && form != Form::difference && is(next, Form::tuple)) next = make_finite_set(next->parts);
      if (!alone && !is_set(next)) throw UnreadFormula();
      out = out ? make_node(form, {out, next}) : next;
    }
    return out;
  }

  Expr of_set_atom(const LatexNode& node) {
    if (const LatexNode* interval = node.child("interval")) return of_interval(*interval);
    if (const LatexNode* named = node.child("named_set")) {
      const std::string name(named->children.front()->rule);
      if (name == "PRIMES") throw UnreadFormula();
      return make_node(Form::named_set, name == "LB" ? "EMPTY" : name, {});
    }
    const LatexNode& list = node.has("tuple") ? *node.child("tuple") : *node.child("braced");
    const std::vector<Exprs> all = rows(*list.child("elements"));
    const bool single = all.size() == 1 && all[0].size() == 1;
    if (node.has("tuple")) return single ? all[0][0] : make_node(Form::tuple, flat(all));
    return list.has("BOXED") ? set_or_single(all) : make_finite_set(flat(all));
  }

  /// (a,b) with b <= a is a pair: it would be an empty interval.
  Expr of_interval(const LatexNode& node) {
    const auto is_open = [](std::string_view mark) { return !mark.ends_with("SQ") && !mark.ends_with("BRACK"); };
    const bool left_open = is_open(node.children.front()->rule), right_open = is_open(node.children.back()->rule);
    const Expr left = formula(*node.child("expr", 0)), right = formula(*node.child("expr", 1));
    const std::optional<int> order = order_of(left, right);
    const bool empty = order && (*order > 0 || (*order == 0 && left_open && right_open));
    if (empty && left_open == right_open) return make_node(Form::tuple, {left, right});
    if (order && *order > 0) return make_node(Form::named_set, "EMPTY", {});
    if (order && *order == 0)
      return left_open || right_open ? make_node(Form::named_set, "EMPTY", {}) : make_finite_set({left});
    for (const Expr& end : {left, right}) {  // sympy has no intervals of complex numbers
      const auto value = symbols_of(end).empty() ? value_at(end, 0) : std::nullopt;
      if ((is(end, Form::symbol) && end->is_complex) || (value && !value->is_real())) throw UnreadFormula();
    }
    return make_expression({.form = Form::interval,
                            .parts = {left, right},
                            .left_open = left_open || infinite_sign(left) < 0,
                            .right_open = right_open || infinite_sign(right) > 0});
  }

  Expr of_relation(const LatexNode& node) {
    const auto sides = node.all("expr");
    Expr out = formula(*sides[0]);
    for (std::size_t i = 1; i < sides.size(); ++i) {
      const Expr right = formula(*sides[i]);
      const std::string_view how = node.child("related", i - 1)->children.front()->rule;
      if (how == "IN") throw UnreadFormula();
      if (how == "APPROX") {
        if (is_of_symbols(out)) out = right;
        continue;
      }
      const std::string name = std::ranges::find(kRelations, how, [](const auto& one) { return one.first; })->second;
      Exprs links = is_relation(out) ? links_of(out) : Exprs();
      links.push_back(make_node(Form::relation, name, {links.empty() ? out : links.back()->parts[1], right}));
      out = links.size() == 1 ? links[0] : make_node(Form::chain, links);
    }
    return out;
  }

  bool is_complex_;
};

/// Whether a text speaks of complex numbers, so that its symbols may be some.
bool speaks_of_complex(std::string_view latex) {
  static const Pattern pattern(
      "\\\\mathbb\\{C\\}|\\\\i\\b|\\bi\\b|\\\\text\\{i\\}|\\\\mathrm\\{i\\}|\\\\imath\\b|\\\\det|"
      "\\\\operatorname\\{(?:tr|rank|Re|Im)\\}|\\\\text\\{(?:rank|Re|Im)\\}|\\\\(?:arg|Re|Im)\\{");
  return pattern.finds(latex);
}

Expr read_as_it_is(std::string_view latex) {
  const auto tokens = latex_tokens(latex);
  if (!tokens) return nullptr;
  const auto tree = parse_latex(*tokens);
  if (!tree) return nullptr;
  try {
    return Reader(speaks_of_complex(latex)).answer(*tree, latex);
  } catch (const UnreadFormula&) {
    return nullptr;
  }
}

}  // namespace

Expr read_latex(std::string_view latex) {
  if (Expr whole = read_as_it_is(latex)) return whole;
  if (latex.find_first_of(",;") != std::string_view::npos) return nullptr;
  static const Pattern equals("(?<![\\\\<!>])=");
  const auto signs = equals.all(latex);
  if (signs.size() < 2) return nullptr;
  return read_as_it_is(latex.substr(static_cast<std::size_t>(signs.back()[0].data() + 1 - latex.data())));
}

}  // namespace tandem::eval
