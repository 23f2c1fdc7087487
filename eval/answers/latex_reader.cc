#include "eval/answers/latex_reader.h"

#include <algorithm>

#include "eval/answers/latex_formula.h"
#include "eval/answers/latex_grammar.h"
#include "eval/answers/latex_symbols.h"
#include "eval/answers/pattern.h"
#include "eval/scoring/python_text.h"

namespace tandem::eval {
namespace {

using Exprs = std::vector<Expr>;

class Reader {
 public:
  Reader(const std::vector<LatexToken>& tokens, bool is_complex) : formulas_(tokens, is_complex) {}

  Expr answer(const LatexNode& node, std::string_view latex) {
    if (const LatexNode* claim = node.child("claim")) return of_claim(*claim);
    if (const LatexNode* elements = node.child("elements")) {
      static const Pattern number_with_commas("^\\s*-?\\d{1,3}(,\\d{3})+(\\.\\d+)?\\s*$");
      if (number_with_commas.finds(latex)) {
        const std::string text = replaced(replaced(latex, " ", ""), "-", "");
        if (text.starts_with('0')) return number_of(replaced(text, ",", "."));
        return latex.find('-') == std::string_view::npos ? number_of(text) : make_negative(number_of(text));
      }
      return set_or_single(rows(*elements, "row", "item"));
    }
    const LatexNode& assigned = *node.child("assigned");
    const Expr values = set_or_single(rows(*assigned.child("values"), "value_row", "value"));
    return make_node(Form::relation, "=", {of_names(*assigned.child("names")), values});
  }

 private:
  // Lists and sets

  /// Elements between commas, for each stretch between semicolons.
  std::vector<Exprs> rows(const LatexNode& node, std::string_view row, std::string_view item) {
    std::vector<Exprs> out;
    for (const LatexNode* one : node.all(row)) {
      Exprs& items = out.emplace_back();
      for (const LatexNode* element : one->all(item)) {
        Exprs more = of_item(*element);
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
      const Expr last = formulas_.expr(*sides.back());
      const Expr negative = is(last, Form::number) && !last->is_float ? make_negative(last)
                                                                      : required(make_product(make_number(-1), last));
      if (sides.size() == 1) return {negative, last};
      const Expr first = formulas_.expr(*sides[0]);
      return {required(make_sum(first, last)), required(make_sum(first, negative))};
    }
    if (const LatexNode* set = node.child("set_atom")) return {of_set_atom(*set)};
    if (const LatexNode* relation = node.child("relation")) return {of_relation(*relation)};
    return {formulas_.expr(*node.child("expr"))};
  }

  Expr of_names(const LatexNode& node) {
    Exprs names;
    for (const LatexNode* one : node.all("symbol")) names.push_back(formulas_.symbol(*one));
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
      using Pair = std::pair<std::string_view, const char*>;
      for (const auto& [kind, name] :
           {Pair{"NAT", "naturals"}, Pair{"INTEGERS", "integers"}, Pair{"RATIONALS", "rationals"},
            Pair{"REALS", "reals"}, Pair{"COMPLEXES", "complexes"}, Pair{"EMPTY", "empty"}, Pair{"LB", "empty"}})
        if (named->has(kind)) return make_node(Form::named_set, name, {});
      throw UnreadFormula();
    }
    const LatexNode& list = node.has("tuple") ? *node.child("tuple") : *node.child("braced");
    const std::vector<Exprs> all = rows(*list.child("elements"), "row", "item");
    const bool single = all.size() == 1 && all[0].size() == 1;
    if (node.has("tuple")) return single ? all[0][0] : make_node(Form::tuple, flat(all));
    return list.has("BOXED") ? set_or_single(all) : make_finite_set(flat(all));
  }

  /// (a,b) with b <= a is a pair: it would be an empty interval.
  Expr of_interval(const LatexNode& node) {
    const Expr left = formulas_.expr(*node.child("expr", 0)), right = formulas_.expr(*node.child("expr", 1));
    const auto opens = [&](std::initializer_list<std::string_view> kinds) {
      return std::any_of(kinds.begin(), kinds.end(), [&](std::string_view kind) { return node.has(kind); });
    };
    const bool left_open = opens({"LP", "LGROUP", "LPV"}), right_open = opens({"RP", "RGROUP", "RPV"});
    return make_interval(left, right, left_open, right_open);
  }

  static Expr make_interval(const Expr& left, const Expr& right, bool left_open, bool right_open) {
    const std::optional<int> order = order_of(left, right);
    const bool empty = order && (*order > 0 || (*order == 0 && left_open && right_open));
    if (empty && left_open == right_open) return make_node(Form::tuple, {left, right});
    if (order && *order > 0) return make_node(Form::named_set, "empty", {});
    if (order && *order == 0)
      return left_open || right_open ? make_node(Form::named_set, "empty", {}) : make_finite_set({left});
    for (const Expr& end : {left, right}) {  // sympy has no intervals of complex numbers
      const MaybeValue value = symbols_of(end).empty() ? value_at(end, 0) : std::nullopt;
      if ((is(end, Form::symbol) && end->is_complex) || (value && !value->is_real())) throw UnreadFormula();
    }
    Expression out;
    out.form = Form::interval;
    out.parts = {left, right};
    out.left_open = left_open || infinite_sign(left) < 0;
    out.right_open = right_open || infinite_sign(right) > 0;
    return std::make_shared<const Expression>(std::move(out));
  }

  // Relations

  Expr of_relation(const LatexNode& node) {
    const auto sides = node.all("expr");
    Expr out = formulas_.expr(*sides[0]);
    for (std::size_t i = 1; i < sides.size(); ++i) {
      const Expr right = formulas_.expr(*sides[i]);
      const std::string_view how = node.child("related", i - 1)->children.front()->rule;
      if (how == "IN") throw UnreadFormula();
      if (how == "APPROX") {
        if (is_of_symbols(out)) out = right;
        continue;
      }
      using Pair = std::pair<std::string_view, const char*>;
      for (const auto& [kind, name] : {Pair{"ASSIGN", "="}, Pair{"EQUAL", "="}, Pair{"LT", "<"}, Pair{"LE", "<="},
                                       Pair{"GT", ">"}, Pair{"GE", ">="}, Pair{"NE", "!="}}) {
        if (how != kind) continue;
        if (is(out, Form::relation) || is(out, Form::chain)) {
          Exprs links = is(out, Form::chain) ? out->parts : Exprs{out};
          links.push_back(make_node(Form::relation, name, {links.back()->parts[1], right}));
          out = make_node(Form::chain, links);
        } else {
          out = make_node(Form::relation, name, {out, right});
        }
        break;
      }
    }
    return out;
  }

  FormulaReader formulas_;
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
    return Reader(*tokens, speaks_of_complex(latex)).answer(*tree, latex);
  } catch (const UnreadFormula&) {
    return nullptr;
  }
}

}  // namespace

Expr read_latex(std::string_view latex) {
  if (Expr whole = read_as_it_is(latex)) return whole;
  if (latex.find_first_of(",;") != std::string_view::npos) return nullptr;
  static const Pattern equals("(?<![\\\\<!>])=");
  const std::vector<std::string> parts = equals.split(latex);
  return parts.size() > 2 ? read_as_it_is(parts.back()) : nullptr;
}

}  // namespace tandem::eval
