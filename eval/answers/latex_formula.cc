#include "eval/answers/latex_formula.h"

#include <algorithm>

#include "eval/scoring/python_text.h"

namespace tandem::eval {
namespace {

using Exprs = std::vector<Expr>;

Expr constant(const char* name) {
  return make_node(Form::constant, name, {});
}

/// a/b, one number where both are whole.
Expr quotient(const Expr& a, const Expr& b) {
  if (is_integer(a) && is_integer(b)) {
    if (b->number == 0) return constant("undefined");
    return make_number(a->number / b->number);
  }
  if (is(b, Form::matrix)) throw UnreadFormula();
  return required(make_product(a, make_power(b, make_number(-1))));
}

Expr transposed(const Expr& matrix) {
  if (!is(matrix, Form::matrix)) return matrix;
  Exprs parts;
  const std::size_t rows = matrix->parts.size() / matrix->columns;
  for (std::size_t j = 0; j < matrix->columns; ++j)
    for (std::size_t i = 0; i < rows; ++i) parts.push_back(matrix->parts[i * matrix->columns + j]);
  return make_matrix(std::move(parts), rows);
}

/// \bar{x} is "bar{x}"; what only changes letters is left out of the name: \text{(C)} is "C".
std::string accented(std::string_view word) {
  const std::size_t open = word.find('{');
  std::string name(word.substr(1, open - 1));
  std::string text = replaced(word.substr(open + 1, word.size() - open - 2), " ", "");
  if (name.find("text") != std::string::npos || name.find("mbox") != std::string::npos)
    return replaced(replaced(text, "(", ""), ")", "");
  if (name == "overline") name = "bar";
  if (name == "overrightarrow") name = "vec";
  if (name == "widetilde") name = "tilde";
  if (name.find("math") != std::string::npos) name = "math";
  return name + "{" + text + "}";
}

/// The symbol or constant of a word with its subscript: "\alpha" is alpha, "\text{(C)}" is c, "X_1" is x_1, "\pi" is
/// the number, I the imaginary unit. Names are latex2sympy2_extended 1.11.0's.
Expr named_symbol(std::string_view word, const std::string& subscript, bool is_complex) {
  if (word == "I") return make_node(Form::constant, "i", {});
  const bool has_accent = word.starts_with('\\') && word.find('{') != std::string_view::npos;
  std::string name = has_accent ? accented(word) : std::string(strip(word));
  if (!subscript.empty()) name += code_points(subscript).size() > 1 ? "_{" + subscript + "}" : "_" + subscript;
  if (const std::string_view command = greek_command(name); !command.empty()) name = command;
  if (name.starts_with('\\')) name.erase(0, 1);
  for (int i = 0; i < 2; ++i) {
    if (name == "pi") return make_node(Form::constant, "pi", {});
    if (name == "gamma" || name == "Gamma") return make_node(Form::constant, "gamma", {});
    name = lower(name);
  }
  return make_symbol(std::move(name), is_complex);
}

class FormulaReader {
 public:
  explicit FormulaReader(bool is_complex) : is_complex_(is_complex) {}

  Expr expr(const LatexNode& node) const {
    Expr out = product(*node.children.front());
    for (std::size_t i = 2; i < node.children.size(); i += 2) {
      const Expr next = product(*node.children[i]);
      out = required(make_sum(out, node.children[i - 1]->rule == "SUB" ? required(make_negative(next)) : next));
    }
    return out;
  }

  Expr product(const LatexNode& node) const {
    Expr out = signed_product(*node.children.front());
    for (std::size_t i = 2; i < node.children.size(); i += 2) {
      const std::string_view how = node.children[i - 1]->rule;
      const Expr next = signed_product(*node.children[i]);
      out = how == "MUL"   ? required(make_product(out, next))
            : how == "MOD" ? make_node(Form::call, "Mod", {out, next})
                           : quotient(out, next);
    }
    return out;
  }

  Expr signed_product(const LatexNode& node) const {
    for (const std::string_view rule : {"signed", "signed_argument"}) {
      if (const LatexNode* inner = node.child(rule)) {
        const Expr value = signed_product(*inner);
        return node.has("SUB") ? required(make_negative(value)) : value;
      }
    }
    // Factors that stand side by side, from right to left: 2 \frac{1}{2} is a mixed number.
    Expr out;
    for (auto child = node.children.rbegin(); child != node.children.rend(); ++child) {
      const Expr factor = postfix(**child);
      const bool is_fraction = out && is(out, Form::number) && !out->is_float && out->number > 0;
      if (out && is_integer(factor) && is_fraction) {
        out = make_number(factor->number + (factor->number < 0 ? -out->number : out->number));
      } else {
        out = out ? required(make_product(factor, out)) : factor;
      }
    }
    return out;
  }

  Expr postfix(const LatexNode& node) const {
    const LatexNode& powers = *node.children.front();
    Expr out = base(*powers.children.front());
    for (const LatexNode* raised : powers.all("raised")) out = required(make_power(out, script(*raised)));
    for (const LatexNode* mark : node.all("mark")) {
      if (mark->has("BANG")) out = make_node(Form::call, "factorial", {out});
      if (mark->has("TRANSPOSE")) out = transposed(out);
    }
    return out;
  }

  Expr base(const LatexNode& whole) const {
    const LatexNode& node = *whole.children.front();
    const auto inner = [&] { return expr(*node.child("expr")); };
    if (node.rule == "group" || node.rule == "boxed") return inner();
    if (node.rule == "absolute") return make_node(Form::call, "Abs", {inner()});
    if (node.rule == "floor" || node.rule == "ceiling") return make_node(Form::call, std::string(node.rule), {inner()});
    if (node.rule == "func") return function(*node.children.front());
    if (node.rule == "atom") return atom(node);
    if (node.rule == "frac") return fraction(node);
    if (node.rule == "binom")
      return make_node(Form::call, "binomial", {expr(*node.child("expr", 0)), expr(*node.child("expr", 1))});
    if (node.rule == "matrix") return matrix(node);
    throw UnreadFormula();  // norms, scalar products and determinants are none of a final answer's
  }

  Expr fraction(const LatexNode& node) const {
    const LatexNode &upper = *node.child("expr", 0), &lower = *node.child("expr", 1);
    const LatexNode* inmost = &lower;
    while (inmost->children.size() == 1) inmost = inmost->children.front().get();
    if (inmost->rule == "DIFF" && upper.text().starts_with('d'))
      return make_node(Form::opaque, "derivative " + node.text(), {});
    const Expr above = expr(upper);
    return quotient(above, expr(lower));
  }

  Expr matrix(const LatexNode& node) const {
    Exprs parts;
    std::size_t columns = 0;
    for (const LatexNode* line : node.all("line")) {
      const auto cells = line->all("expr");
      if (columns != 0 && cells.size() != columns) throw UnreadFormula();
      columns = cells.size();
      for (const LatexNode* cell : cells) parts.push_back(expr(*cell));
    }
    if (std::any_of(parts.begin(), parts.end(), [](const Expr& e) { return is(e, Form::matrix); }))
      throw UnreadFormula();
    return make_matrix(std::move(parts), columns);
  }

  // Names and numbers

  Expr atom(const LatexNode& whole) const {
    const LatexNode& node = *whole.children.front();
    const std::string own = node.text();
    if (node.rule == "symbol") return symbol(node);
    if (node.rule == "numeral") return required(read_number(node.child("NUMBER")->text()));
    if (node.rule == "ENOT") return required(read_number(own));
    if (node.rule == "PERCENT") {
      const std::size_t end = own.find_first_not_of("0123456789.");
      return make_node(Form::call, "percent", {required(read_number(own.substr(0, end)))});
    }
    if (node.rule == "INFTY") {
      if (own != "\\infty") throw UnreadFormula();
      return constant("infinity");
    }
    if (node.rule == "BIGE") return make_symbol("e", is_complex_);
    if (node.rule == "GAMMA") return constant("gamma");
    if (node.rule == "DIFF") {  // dx
      std::string name = own.substr(own.find_first_not_of(" \t\r\n", 1));
      if (name.starts_with('\\')) name.erase(0, 1);
      return make_symbol("d" + lower(name), is_complex_);
    }
    throw UnreadFormula();
  }

  Expr symbol(const LatexNode& node) const {
    const LatexNode* sub = node.child("sub");
    return raised(named_symbol(node.child("name")->text(), sub != nullptr ? subscript(*sub) : "", is_complex_), node);
  }

  std::string subscript(const LatexNode& node) const {
    for (const std::string_view rule : {"atom", "expr", "arguments"})
      if (const LatexNode* inner = node.child(rule)) return inner->text();
    return "";
  }

  /// The formula of a subscript or superscript.
  Expr script(const LatexNode& node) const {
    if (const LatexNode* single = node.child("atom")) return atom(*single);
    if (const LatexNode* whole = node.child("expr")) return expr(*whole);
    throw UnreadFormula();
  }

  /// To the power of the node's superscript, if it has one.
  Expr raised(const Expr& value, const LatexNode& node) const {
    const LatexNode* sup = node.child("sup");
    return sup != nullptr ? required(make_power(value, script(*sup))) : value;
  }

  // Functions

  Expr function(const LatexNode& node) const {
    if (node.rule == "unary_call") return unary_call(node);
    if (node.rule == "list_call") return raised(list_call(node), node);
    if (node.rule == "named_call") return raised(named_call(node), node);
    if (node.rule == "exponential") return raised(constant("e"), node);
    if (node.rule == "root") {
      const LatexNode& radicand = *node.child("expr", node.all("expr").size() - 1);
      const Expr degree = node.has("LSQ") ? expr(*node.child("expr")) : make_number(2);
      return required(make_power(expr(radicand), quotient(make_number(1), degree)));
    }
    return operation(node);
  }

  /// A sum, product, integral or limit: a function of everything in it, which is not computed.
  Expr operation(const LatexNode& node) const {
    std::string name(node.children.front()->rule);
    Exprs parts;
    for (const auto& child : node.children) {
      name += " " + std::string(child->rule);
      if (child->rule == "from") {
        for (const LatexNode* side : child->all("expr")) parts.push_back(expr(*side));
      } else if (child->rule == "sub" || child->rule == "sup") {
        parts.push_back(script(*child));
      } else if (child->rule == "product") {
        parts.push_back(product(*child));
      } else if (child->rule == "expr") {
        parts.push_back(expr(*child));
      } else if (child->rule == "frac") {
        parts.push_back(fraction(*child));
      } else if (child->rule != "EQUAL" && child->rule != "ASSIGN") {
        name += child->text();
      }
    }
    return make_node(Form::call, name + "()", parts);
  }

  Expr unary_call(const LatexNode& node) const {
    const Expr argument = node.has("expr") ? expr(*node.child("expr")) : product(*node.child("argument"));
    const LatexNode *sup = node.child("sup"), *sub = node.child("sub");
    Expr power = sup != nullptr ? script(*sup) : nullptr;
    const LatexNode& which = *node.child("unary");
    std::string name = which.has("NAME1") ? which.child("NAME1")->text() : which.text().substr(1);
    if (name.starts_with("arc")) name = "a" + name.substr(3);
    if (name.starts_with("ar") && name.ends_with('h')) name = "a" + name.substr(2);
    if (name == "ceil") name = "ceiling";
    constexpr std::string_view kTrigonometric[] = {"sin", "cos", "tan", "csc", "sec", "cot", "sinh", "cosh", "tanh"};
    const bool is_trigonometric = std::ranges::find(kTrigonometric, name) != std::end(kTrigonometric);
    if (is_trigonometric && power && is_integer(power) && power->number == -1) {
      name = "a" + name;
      power = nullptr;
    }
    Expr out;
    if (name == "ln" || name == "log") {
      const Expr base = sub != nullptr ? script(*sub) : name == "ln" ? constant("e") : make_number(10);
      out = make_node(Form::call, "log", {argument, base});
    } else if (name == "exp") {
      out = make_node(Form::power, {constant("e"), argument});
    } else if (name == "Gamma" || name == "gamma") {
      out = make_node(Form::call, "gamma", {argument});
    } else if (is_trigonometric || name.starts_with('a') || name == "floor" || name == "ceiling") {
      out = make_node(Form::call, name, {argument});
    } else {
      throw UnreadFormula();  // matrix functions
    }
    return power ? required(make_power(out, power)) : out;
  }

  Expr list_call(const LatexNode& node) const {
    const LatexNode* list = node.child("list");
    if (list == nullptr) throw UnreadFormula();  // upstream has an error there
    Exprs arguments;
    for (; list != nullptr; list = list->child("list")) arguments.push_back(expr(*list->child("expr")));
    const LatexNode& which = *node.child("listed");
    std::string name = which.has("NAME2") ? which.child("NAME2")->text() : which.text().substr(1);
    if (name == "max") name = "Max";
    if (name == "min") name = "Min";
    if (name != "Max" && name != "Min" && name != "gcd" && name != "lcm") throw UnreadFormula();
    return make_node(Form::call, name, arguments);
  }

  /// f(x), f(x, y): a function of no known meaning.
  Expr named_call(const LatexNode& node) const {
    Exprs arguments;
    const LatexNode* given = node.child("given");
    if (const LatexNode* single = given->child("atom")) arguments.push_back(atom(*single));
    for (; given != nullptr && given->has("expr"); given = given->child("arguments"))
      arguments.push_back(expr(*given->child("expr")));
    return make_node(Form::call, node.child("callee")->text() + "()", arguments);
  }

 private:
  bool is_complex_;
};

}  // namespace

Expr read_formula(const LatexNode& node, bool is_complex) {
  return FormulaReader(is_complex).expr(node);
}

Expr read_symbol(const LatexNode& node, bool is_complex) {
  return FormulaReader(is_complex).symbol(node);
}

}  // namespace tandem::eval
