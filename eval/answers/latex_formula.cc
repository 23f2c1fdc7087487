#include "eval/answers/latex_formula.h"

#include <algorithm>

#include "eval/answers/latex_symbols.h"
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
    mpq_class ratio(a->number / b->number);
    return make_number(ratio);
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

}  // namespace

/// "1,234.5" without its commas and leading zeros.
Expr number_of(std::string_view text) {
  const std::string digits = replaced(text, ",", "");
  const std::size_t dot = digits.find('.'), exponent = digits.find('E');
  const std::string whole = digits.substr(0, std::min(dot, exponent));
  const std::string places = dot == std::string::npos ? "" : digits.substr(dot + 1, exponent - dot - 1);
  if (places.find('.') != std::string::npos) throw UnreadFormula();  // 0,500,500 is read as 0.500.500
  mpq_class number(mpz_class("0" + whole + places, 10));
  long shift = -static_cast<long>(places.size());
  if (exponent != std::string::npos) {
    const std::string power = replaced(digits.substr(exponent + 1), "\u2212", "-");
    constexpr std::size_t kMostDigits = 5;
    if (power.size() > kMostDigits) throw UnreadFormula();
    shift += std::stol(power);
  }
  mpz_class scale;
  mpz_ui_pow_ui(scale.get_mpz_t(), 10, static_cast<unsigned long>(std::abs(shift)));
  if (shift < 0) number /= scale;
  if (shift > 0) number *= scale;
  return make_number(number, dot != std::string::npos || exponent != std::string::npos);
}

std::string FormulaReader::text(const LatexNode& node) const {
  std::string out;
  for (std::size_t i = node.begin; i < node.end; ++i) out += tokens_[i].text;
  return out;
}

// Formulas

Expr FormulaReader::expr(const LatexNode& node) const {
  Expr out;
  bool negative = false;
  for (const auto& child : node.children) {
    if (child->rule == "product") {
      Expr next = product(*child);
      if (negative) next = required(make_negative(next));
      out = out ? required(make_sum(out, next)) : next;
    }
    negative = child->rule == "SUB";
  }
  return out;
}

Expr FormulaReader::product(const LatexNode& node) const {
  Expr out;
  std::string_view how;
  for (const auto& child : node.children) {
    if (child->rule == "signed" || child->rule == "signed_argument") {
      const Expr next = signed_product(*child);
      if (!out) {
        out = next;
      } else if (how == "MUL") {
        out = required(make_product(out, next));
      } else if (how == "MOD") {
        out = make_node(Form::call, "Mod", {out, next});
      } else {
        out = quotient(out, next);
      }
    } else {
      how = child->rule;
    }
  }
  return out;
}

Expr FormulaReader::signed_product(const LatexNode& node) const {
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

Expr FormulaReader::postfix(const LatexNode& node) const {
  const LatexNode& powers = *node.children.front();
  Expr out = base(*powers.children.front());
  for (const LatexNode* raised : powers.all("raised")) {
    const LatexNode* single = raised->child("atom");
    out = required(make_power(out, single != nullptr ? atom(*single) : expr(*raised->child("expr"))));
  }
  for (const LatexNode* mark : node.all("mark")) {
    if (mark->has("BANG")) out = make_node(Form::call, "factorial", {out});
    if (mark->has("TRANSPOSE")) out = transposed(out);
  }
  return out;
}

Expr FormulaReader::base(const LatexNode& whole) const {
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

Expr FormulaReader::fraction(const LatexNode& node) const {
  const LatexNode &upper = *node.child("expr", 0), &lower = *node.child("expr", 1);
  const bool is_derivative = lower.end == lower.begin + 1 && latex_token_kinds()[tokens_[lower.begin].kind] == "DIFF" &&
                             text(upper).starts_with('d');
  if (is_derivative) return make_node(Form::opaque, "derivative " + text(node), {});
  const Expr above = expr(upper), below = expr(lower);
  return quotient(above, below);
}

Expr FormulaReader::matrix(const LatexNode& node) const {
  Exprs parts;
  std::size_t columns = 0;
  for (const LatexNode* line : node.all("line")) {
    const auto cells = line->all("expr");
    if (columns != 0 && cells.size() != columns) throw UnreadFormula();
    columns = cells.size();
    for (const LatexNode* cell : cells) parts.push_back(expr(*cell));
  }
  if (std::any_of(parts.begin(), parts.end(), [](const Expr& e) { return is(e, Form::matrix); })) throw UnreadFormula();
  return make_matrix(std::move(parts), columns);
}

// Names and numbers

Expr FormulaReader::atom(const LatexNode& whole) const {
  const LatexNode& node = *whole.children.front();
  const std::string own = text(node);
  if (node.rule == "symbol") return symbol(node);
  if (node.rule == "numeral") return number_of(tokens_[node.begin].text);
  if (node.rule == "ENOT") return number_of(own);
  if (node.rule == "PERCENT") {
    const std::size_t end = own.find_first_not_of("0123456789.");
    return make_node(Form::call, "percent", {number_of(own.substr(0, end))});
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
    return make_symbol("d" + lower_case(name), is_complex_);
  }
  throw UnreadFormula();
}

Expr FormulaReader::symbol(const LatexNode& node) const {
  const LatexNode* sub = node.child("sub");
  const Expr name = named_symbol(text(*node.child("name")), sub != nullptr ? subscript(*sub) : "", is_complex_);
  const LatexNode* sup = node.child("sup");
  return sup != nullptr ? required(make_power(name, script(*sup))) : name;
}

std::string FormulaReader::subscript(const LatexNode& node) const {
  for (const std::string_view rule : {"atom", "expr", "arguments"})
    if (const LatexNode* inner = node.child(rule)) return text(*inner);
  return "";
}

/// The formula of a subscript or superscript.
Expr FormulaReader::script(const LatexNode& node) const {
  if (const LatexNode* single = node.child("atom")) return atom(*single);
  if (const LatexNode* whole = node.child("expr")) return expr(*whole);
  throw UnreadFormula();
}

// Functions

Expr FormulaReader::function(const LatexNode& node) const {
  const auto raised = [&](const Expr& value) {
    const LatexNode* sup = node.child("sup");
    return sup != nullptr ? required(make_power(value, script(*sup))) : value;
  };
  if (node.rule == "unary_call") return unary_call(node);
  if (node.rule == "list_call") return raised(list_call(node));
  if (node.rule == "named_call") return raised(named_call(node));
  if (node.rule == "exponential") return raised(constant("e"));
  if (node.rule == "root") {
    const LatexNode& radicand = *node.child("expr", node.all("expr").size() - 1);
    const Expr degree = node.has("LSQ") ? expr(*node.child("expr")) : make_number(2);
    return required(make_power(expr(radicand), quotient(make_number(1), degree)));
  }
  return operation(node);
}

/// A sum, product, integral or limit: a function of everything in it, which is not computed.
Expr FormulaReader::operation(const LatexNode& node) const {
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
      name += text(*child);
    }
  }
  return make_node(Form::call, name + "()", parts);
}

Expr FormulaReader::unary_call(const LatexNode& node) const {
  const Expr argument = node.has("expr") ? expr(*node.child("expr")) : product(*node.child("argument"));
  const LatexNode *sup = node.child("sup"), *sub = node.child("sub");
  Expr power = sup != nullptr ? script(*sup) : nullptr;
  const LatexNode& which = *node.child("unary");
  std::string name = which.has("NAME1") ? text(*which.child("NAME1")) : text(which).substr(1);
  if (name.starts_with("arc")) name = "a" + name.substr(3);
  if (name.starts_with("ar") && name.ends_with('h')) name = "a" + name.substr(2);
  if (name == "ceil") name = "ceiling";
  const bool is_trigonometric = name == "sin" || name == "cos" || name == "tan" || name == "csc" || name == "sec" ||
                                name == "cot" || name == "sinh" || name == "cosh" || name == "tanh";
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

Expr FormulaReader::list_call(const LatexNode& node) const {
  const LatexNode* list = node.child("list");
  if (list == nullptr) throw UnreadFormula();  // upstream has an error there
  Exprs arguments;
  for (; list != nullptr; list = list->child("list")) arguments.push_back(expr(*list->child("expr")));
  const LatexNode& which = *node.child("listed");
  std::string name = which.has("NAME2") ? text(*which.child("NAME2")) : text(which).substr(1);
  if (name == "max") name = "Max";
  if (name == "min") name = "Min";
  if (name != "Max" && name != "Min" && name != "gcd" && name != "lcm") throw UnreadFormula();
  return make_node(Form::call, name, arguments);
}

/// f(x), f(x, y): a function of no known meaning.
Expr FormulaReader::named_call(const LatexNode& node) const {
  Exprs arguments;
  const LatexNode& given = *node.child("given");
  if (const LatexNode* single = given.child("atom")) arguments.push_back(atom(*single));
  if (const LatexNode* whole = given.child("expr")) arguments.push_back(expr(*whole));
  for (const LatexNode* more = given.child("arguments"); more != nullptr; more = more->child("arguments"))
    arguments.push_back(expr(*more->child("expr")));
  return make_node(Form::call, text(*node.child("callee")) + "()", arguments);
}

}  // namespace tandem::eval
