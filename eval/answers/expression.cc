#include "eval/answers/expression.h"

#include <algorithm>

#include "eval/ruler_tasks/random.h"
#include "eval/scoring/python_text.h"

namespace tandem::eval {
namespace {

/// Sums and products of more parts than this are not compared in every order.
constexpr std::size_t kMostUnordered = 64;

Expr flattened(Form form, const Expr& a, const Expr& b) {
  std::vector<Expr> parts;
  for (const Expr& side : {a, b}) {
    if (is(side, form)) {
      parts.insert(parts.end(), side->parts.begin(), side->parts.end());
    } else {
      parts.push_back(side);
    }
  }
  return make_node(form, std::move(parts));
}

/// Nodes of a tree, shared ones as often as they are met, up to `most`.
std::size_t size_of(const Expr& e, std::size_t most) {
  std::size_t size = 1;
  for (const Expr& part : e->parts) {
    if (size >= most) break;
    size += size_of(part, most - size);
  }
  return size;
}

Expr matrix_product(const Expr& a, const Expr& b) {
  constexpr std::size_t kMostProducts = 10000, kMostNodes = 5000;
  std::vector<Expr> parts;
  if (is(a, Form::matrix) && is(b, Form::matrix)) {
    const std::size_t inner = a->columns, rows = a->parts.size() / inner, columns = b->columns;
    if (b->parts.size() / columns != inner || rows * columns * inner > kMostProducts) return nullptr;
    for (std::size_t i = 0; i < rows; ++i) {
      for (std::size_t j = 0; j < columns; ++j) {
        Expr sum = make_product(a->parts[i * inner], b->parts[j]);
        for (std::size_t k = 1; k < inner; ++k)
          sum = make_sum(sum, make_product(a->parts[i * inner + k], b->parts[k * columns + j]));
        parts.push_back(std::move(sum));
      }
    }
    Expr out = make_matrix(std::move(parts), columns);
    return size_of(out, kMostNodes) < kMostNodes ? out : nullptr;
  }
  const Expr& matrix = is(a, Form::matrix) ? a : b;
  const Expr& factor = is(a, Form::matrix) ? b : a;
  for (const Expr& part : matrix->parts) parts.push_back(make_product(factor, part));
  return make_matrix(std::move(parts), matrix->columns);
}

bool has_order(Form form) {
  return form != Form::finite_set && form != Form::set_union && form != Form::intersection && form != Form::sum &&
         form != Form::product;
}

bool same_parts(std::vector<Expr> a, const std::vector<Expr>& b, bool ordered) {
  if (a.size() != b.size()) return false;
  if (ordered || a.size() > kMostUnordered) return std::equal(a.begin(), a.end(), b.begin(), same_tree);
  for (const Expr& part : b) {
    const auto found = std::find_if(a.begin(), a.end(), [&](const Expr& one) { return same_tree(one, part); });
    if (found == a.end()) return false;
    a.erase(found);
  }
  return true;
}

std::uint64_t hash_of(std::string_view text) {
  return mix64(fnv1a64(text));
}

/// A rational from -4 to 4 that follows from a hash; its sign too.
mpq_class rational_of(std::uint64_t hash) {
  mpq_class out(static_cast<long>(hash % 397) + 2, 97 + (hash >> 32U) % 3);
  out.canonicalize();
  return ((hash >> 20U) & 1U) == 0 ? out : mpq_class(-out);
}

Value complex_value(std::uint64_t hash) {
  const mpq_class real = rational_of(hash), imaginary = rational_of(mix64(hash));
  ComplexNumber out;
  mpc_set_q_q(out.get(), real.get_mpq_t(), imaginary.get_mpq_t(), MPC_RNDNN);
  return Value(out);
}

/// The same text for numbers that are equal but for rounding.
std::string text_of_value(const Value& value) {
  if (value.exact() != nullptr) return value.exact()->get_str();
  constexpr std::size_t kDigits = 30;
  std::string out;
  const ComplexNumber number = value.complex();
  for (mpfr_srcptr part : {number.real(), number.imaginary()}) {
    mpfr_exp_t exponent = 0;
    char* digits = mpfr_get_str(nullptr, &exponent, 10, kDigits, part, MPFR_RNDN);
    out += std::string(digits) + "e" + std::to_string(exponent) + ",";
    mpfr_free_str(digits);
  }
  return out;
}

class Evaluation {
 public:
  explicit Evaluation(unsigned point) : point_(point) {}

  Value of(const Expr& e) {
    constexpr unsigned kMostSteps = 20000;
    if (++steps_ > kMostSteps) throw NoValue();
    switch (e->form) {
      case Form::number:
        return Value(e->number);
      case Form::constant:
        return constant_value(e->name);
      case Form::symbol:
        return e->is_complex ? complex_value(hash_here(e->name + "*")) : Value(rational_of(hash_here(e->name + "#")));
      case Form::sum:
      case Form::product: {
        Value out = of(e->parts.front());
        for (std::size_t i = 1; i < e->parts.size(); ++i)
          out = is(e, Form::sum) ? out + of(e->parts[i]) : out * of(e->parts[i]);
        return out;
      }
      case Form::power: {
        const Value base = of(e->parts[0]);
        return power_of(base, of(e->parts[1]));
      }
      case Form::call: {
        if (e->name.ends_with("()")) return of_unknown_function(e);
        std::vector<Value> arguments;
        for (const Expr& part : e->parts) arguments.push_back(of(part));
        return function_value(e->name, arguments);
      }
      case Form::opaque:
        return Value(rational_of(hash_here(text_of(e) + "#")));
      default:
        throw NoValue();
    }
  }

 private:
  std::uint64_t hash_here(const std::string& text) const { return hash_of(text + std::to_string(point_)); }

  Value of_unknown_function(const Expr& e) {
    std::string text = e->name;
    for (const Expr& part : e->parts) {
      try {
        text += text_of_value(of(part)) + ";";
      } catch (const NoValue&) {
        text += text_of(part) + ";";
      }
    }
    return Value(rational_of(hash_of(text)));
  }

  unsigned point_, steps_ = 0;
};

void collect_symbols(const Expr& e, std::set<std::string>& out) {
  if (is(e, Form::symbol)) out.insert(e->is_complex ? e->name + "*" : e->name);
  for (const Expr& part : e->parts) collect_symbols(part, out);
}

}  // namespace

Expr read_number(std::string_view text) {
  const std::string digits = replaced(text, ",", "");
  const std::size_t dot = digits.find('.'), exponent = digits.find('E');
  const std::string whole = digits.substr(0, std::min(dot, exponent));
  const std::string places = dot == std::string::npos ? "" : digits.substr(dot + 1, exponent - dot - 1);
  if (places.find('.') != std::string::npos) return nullptr;  // 0,500,500 is read as 0.500.500
  mpq_class number(mpz_class("0" + whole + places, 10));
  long shift = -static_cast<long>(places.size());
  if (exponent != std::string::npos) {
    const std::string power = replaced(digits.substr(exponent + 1), "\u2212", "-");
    constexpr std::size_t kMostDigits = 5;
    if (power.size() > kMostDigits) return nullptr;
    shift += std::stol(power);
  }
  mpz_class scale;
  mpz_ui_pow_ui(scale.get_mpz_t(), 10, static_cast<unsigned long>(std::abs(shift)));
  if (shift < 0) number /= scale;
  if (shift > 0) number *= scale;
  return make_number(number, dot != std::string::npos || exponent != std::string::npos);
}

Expr make_sum(const Expr& a, const Expr& b) {
  if (!is(a, Form::matrix) && !is(b, Form::matrix)) return flattened(Form::sum, a, b);
  if (!is(a, Form::matrix) || !is(b, Form::matrix) || a->columns != b->columns || a->parts.size() != b->parts.size())
    return nullptr;
  std::vector<Expr> parts;
  parts.reserve(a->parts.size());
  for (std::size_t i = 0; i < a->parts.size(); ++i) parts.push_back(make_sum(a->parts[i], b->parts[i]));
  return make_matrix(std::move(parts), a->columns);
}

Expr make_product(const Expr& a, const Expr& b) {
  return is(a, Form::matrix) || is(b, Form::matrix) ? matrix_product(a, b) : flattened(Form::product, a, b);
}

Expr make_negative(const Expr& a) {
  if (is(a, Form::number)) return make_number(-a->number, a->is_float);
  return make_product(make_number(-1), a);
}

Expr make_power(const Expr& base, const Expr& exponent) {
  if (!is(base, Form::matrix)) return make_node(Form::power, {base, exponent});
  constexpr long kMost = 16;
  if (!is_integer(exponent) || exponent->number < 1 || exponent->number > kMost) return nullptr;
  Expr out = base;
  for (long i = exponent->number.get_num().get_si(); out && i > 1; --i) out = matrix_product(out, base);
  return out;
}

Expr make_finite_set(const std::vector<Expr>& elements) {
  std::vector<Expr> out;
  for (const Expr& one : elements) {
    const bool known = std::any_of(out.begin(), out.end(), [&](const Expr& e) { return same_tree(e, one); });
    if (!known) out.push_back(one);
  }
  return out.empty() ? make_node(Form::named_set, "EMPTY", {}) : make_node(Form::finite_set, std::move(out));
}

bool is_integer(const Expr& e) {
  return is(e, Form::number) && !e->is_float && e->number.get_den() == 1;
}

bool is_set(const Expr& e) {
  switch (e->form) {
    case Form::finite_set:
    case Form::interval:
    case Form::set_union:
    case Form::intersection:
    case Form::difference:
    case Form::named_set:
      return true;
    default:
      return false;
  }
}

int infinite_sign(const Expr& e) {
  if (is(e, Form::constant) && e->name == "infinity") return 1;
  const bool is_negative = is(e, Form::product) && e->parts.size() == 2 && is_integer(e->parts[0]) &&
                           e->parts[0]->number == -1 && infinite_sign(e->parts[1]) == 1;
  return is_negative ? -1 : 0;
}

bool is_of_symbols(const Expr& e) {
  if (is(e, Form::symbol)) return true;
  if (is(e, Form::power) && is_integer(e->parts[1]) && e->parts[1]->number == -1) return is_of_symbols(e->parts[0]);
  return !e->parts.empty() && std::all_of(e->parts.begin(), e->parts.end(), is_of_symbols);
}

bool same_tree(const Expr& a, const Expr& b) {
  if (a == b) return true;
  return a->form == b->form && a->name == b->name && a->number == b->number && a->is_float == b->is_float &&
         a->is_complex == b->is_complex && a->left_open == b->left_open && a->right_open == b->right_open &&
         a->columns == b->columns && same_parts(a->parts, b->parts, has_order(a->form));
}

std::string text_of(const Expr& e) {
  std::string out = std::to_string(static_cast<int>(e->form)) + e->name;
  if (is(e, Form::number)) out += e->number.get_str() + (e->is_float ? "f" : "");
  out += e->is_complex ? "*(" : "(";
  for (const Expr& part : e->parts) out += text_of(part) + ",";
  return out + (e->left_open ? "o" : "") + (e->right_open ? ")o" : ")");
}

std::set<std::string> symbols_of(const Expr& e) {
  std::set<std::string> out;
  collect_symbols(e, out);
  return out;
}

Value value_of(const Expr& e, unsigned point) {
  return Evaluation(point).of(e);
}

std::optional<Value> value_at(const Expr& e, unsigned point) {
  try {
    return value_of(e, point);
  } catch (const NoValue&) {
    return std::nullopt;
  }
}

}  // namespace tandem::eval
