#include "eval/answers/value.h"

#include <algorithm>
#include <array>
#include <optional>

namespace tandem::eval {
namespace {

constexpr std::size_t kMostBits = std::size_t{1} << 17;  // of an exact number
constexpr mpfr_exp_t kMostExponent = 4096;               // of what goes into a transcendental function
constexpr long kExactBits = 200;                         // of 256, that rounding leaves untouched

std::size_t bits_of(const mpq_class& number) {
  return std::max(mpz_sizeinbase(number.get_num_mpz_t(), 2), mpz_sizeinbase(number.get_den_mpz_t(), 2));
}

Value checked(const mpq_class& number) {
  if (bits_of(number) > kMostBits) throw NoValue();
  return Value(number);
}

bool is_zero(const ComplexNumber& number) {
  return mpfr_zero_p(number.real()) != 0 && mpfr_zero_p(number.imaginary()) != 0;
}

/// Neither part is so large that a function of it would need many more bits.
bool is_moderate(const ComplexNumber& number) {
  const auto moderate = [](mpfr_srcptr part) { return mpfr_zero_p(part) != 0 || mpfr_get_exp(part) <= kMostExponent; };
  return moderate(number.real()) && moderate(number.imaginary());
}

ComplexNumber difference(const Value& a, const Value& b) {
  if (a.exact() != nullptr && b.exact() != nullptr) return Value(mpq_class(*a.exact() - *b.exact())).complex();
  ComplexNumber out;
  mpc_sub(out.get(), a.complex().get(), b.complex().get(), MPC_RNDNN);
  return out;
}

/// log2 of a number's larger part, rounded up; very small for 0.
mpfr_exp_t magnitude(const ComplexNumber& number) {
  const auto of = [](mpfr_srcptr part) { return mpfr_zero_p(part) != 0 ? mpfr_get_emin() : mpfr_get_exp(part); };
  return std::max(of(number.real()), of(number.imaginary()));
}

/// b^n of rationals without roots; nothing where it does not exist or is too long.
std::optional<mpq_class> integer_power(const mpq_class& base, const mpz_class& exponent) {
  if (base == 0 && exponent < 0) return std::nullopt;
  if (base == 0 || base == 1 || exponent == 0) return mpq_class(exponent == 0 || base == 1 ? 1 : 0);
  if (base == -1) return mpq_class(mpz_odd_p(exponent.get_mpz_t()) != 0 ? -1 : 1);
  if (!exponent.fits_slong_p()) return std::nullopt;
  const auto times = static_cast<unsigned long>(std::abs(exponent.get_si()));
  if (bits_of(base) * times > kMostBits) return std::nullopt;
  mpq_class out;
  mpz_pow_ui(out.get_num_mpz_t(), base.get_num_mpz_t(), times);
  mpz_pow_ui(out.get_den_mpz_t(), base.get_den_mpz_t(), times);
  if (exponent < 0) out = 1 / out;
  out.canonicalize();
  return out;
}

/// base^(p/q) where it is rational; the base is above 0.
std::optional<mpq_class> exact_root(const mpq_class& base, const mpq_class& exponent) {
  if (base <= 0 || !exponent.get_den().fits_ulong_p() || exponent.get_den() > 64) return std::nullopt;
  mpq_class root;
  const unsigned long q = exponent.get_den().get_ui();
  if (mpz_root(root.get_num_mpz_t(), base.get_num_mpz_t(), q) == 0) return std::nullopt;
  if (mpz_root(root.get_den_mpz_t(), base.get_den_mpz_t(), q) == 0) return std::nullopt;
  return integer_power(root, exponent.get_num());
}

using Function = int (*)(mpc_ptr, mpc_srcptr, mpc_rnd_t);
struct NamedFunction {
  std::string_view name;
  Function function;
  bool of_inverse = false;  // f(1/x)
  bool inverse = false;     // 1/f(x)
};
constexpr auto kFunctions = std::to_array<NamedFunction>({
    {"sin", mpc_sin},
    {"cos", mpc_cos},
    {"tan", mpc_tan},
    {"csc", mpc_sin, false, true},
    {"sec", mpc_cos, false, true},
    {"cot", mpc_tan, false, true},
    {"asin", mpc_asin},
    {"acos", mpc_acos},
    {"atan", mpc_atan},
    {"acsc", mpc_asin, true},
    {"asec", mpc_acos, true},
    {"acot", mpc_atan, true},
    {"sinh", mpc_sinh},
    {"cosh", mpc_cosh},
    {"tanh", mpc_tanh},
    {"asinh", mpc_asinh},
    {"acosh", mpc_acosh},
    {"atanh", mpc_atanh},
    {"exp", mpc_exp},
    {"log", mpc_log},
});

Value complex_function(const NamedFunction& which, const Value& argument) {
  ComplexNumber x = argument.complex(), out;
  if (!is_moderate(x)) throw NoValue();
  if (which.of_inverse) {
    if (is_zero(x)) throw NoValue();
    mpc_ui_div(x.get(), 1, x.get(), MPC_RNDNN);
  }
  which.function(out.get(), x.get(), MPC_RNDNN);
  if (which.inverse) {
    if (is_zero(out)) throw NoValue();
    mpc_ui_div(out.get(), 1, out.get(), MPC_RNDNN);
  }
  return Value(out);
}

Value gamma_value(const Value& x, bool factorial) {
  constexpr long kMost = 5000;
  if (x.is_integer()) {
    const mpz_class n = x.exact()->get_num() - (factorial ? 0 : 1);
    if (n < 0 || n > kMost) throw NoValue();
    return Value(mpz_class::factorial(n));
  }
  if (!x.is_real()) throw NoValue();
  ComplexNumber out = x.complex();
  if (mpfr_cmp_si(out.real(), kMost) > 0 || mpfr_cmp_si(out.real(), -kMost) < 0) throw NoValue();
  if (factorial) mpfr_add_ui(out.real(), out.real(), 1, MPFR_RNDN);
  mpfr_gamma(out.real(), out.real(), MPFR_RNDN);
  mpfr_set_zero(out.imaginary(), 1);
  return Value(out);
}

Value rounded_to_integer(const Value& x, bool down) {
  mpz_class out;
  if (const mpq_class* exact = x.exact()) {
    (down ? mpz_fdiv_q : mpz_cdiv_q)(out.get_mpz_t(), exact->get_num_mpz_t(), exact->get_den_mpz_t());
    return Value(out);
  }
  const ComplexNumber number = x.complex();
  if (!x.is_real() || !is_moderate(number)) throw NoValue();
  mpfr_get_z(out.get_mpz_t(), number.real(), down ? MPFR_RNDD : MPFR_RNDU);
  return Value(out);
}

Value absolute(const Value& x) {
  if (const mpq_class* exact = x.exact()) return Value(abs(*exact));
  ComplexNumber out;
  mpc_abs(out.real(), x.complex().get(), MPFR_RNDN);
  mpfr_set_zero(out.imaginary(), 1);
  return Value(out);
}

/// n choose k of a whole k that is not large; by gamma functions otherwise.
Value binomial(const Value& n, const Value& k) {
  if (!k.is_integer()) return gamma_value(n, true) / (gamma_value(k, true) * gamma_value(n - k, true));
  constexpr long kMost = 2000;
  if (*k.exact() < 0) return Value(0);
  const bool mirrored = n.is_integer() && *n.exact() >= *k.exact() && *n.exact() - *k.exact() < *k.exact();
  const mpz_class below = mirrored ? mpz_class(n.exact()->get_num() - k.exact()->get_num()) : k.exact()->get_num();
  if (below > kMost) throw NoValue();
  Value out(1);
  for (long i = 0; i < below.get_si(); ++i) out = out * (n + Value(-i)) * Value(mpq_class(1, i + 1));
  return out;
}

Value gcd_or_lcm(const std::vector<Value>& numbers, bool gcd) {
  mpz_class out = gcd ? 0 : 1;
  for (const Value& number : numbers) {
    if (!number.is_integer()) throw NoValue();
    (gcd ? mpz_gcd : mpz_lcm)(out.get_mpz_t(), out.get_mpz_t(), number.exact()->get_num_mpz_t());
    if (bits_of(out) > kMostBits) throw NoValue();
  }
  return Value(out);
}

Value extreme(const std::vector<Value>& numbers, int sign) {
  if (numbers.empty() || !std::all_of(numbers.begin(), numbers.end(), [](const Value& v) { return v.is_real(); }))
    throw NoValue();
  return *std::max_element(numbers.begin(), numbers.end(),
                           [sign](const Value& a, const Value& b) { return sign * compare_real(a, b) < 0; });
}

}  // namespace

Value::Value(const ComplexNumber& number) : rounded_(std::make_shared<const ComplexNumber>(number)) {
  if (mpfr_number_p(number.real()) == 0 || mpfr_number_p(number.imaginary()) == 0) throw NoValue();
}

ComplexNumber Value::complex() const {
  if (rounded_) return *rounded_;
  ComplexNumber out;
  mpc_set_q(out.get(), exact_.get_mpq_t(), MPC_RNDNN);
  return out;
}

bool Value::is_real() const {
  if (!rounded_ || mpfr_zero_p(rounded_->imaginary()) != 0) return true;
  if (mpfr_zero_p(rounded_->real()) != 0) return false;
  return mpfr_get_exp(rounded_->imaginary()) < mpfr_get_exp(rounded_->real()) - kExactBits;
}

Value constant_value(std::string_view name) {
  ComplexNumber out;
  mpc_set_ui(out.get(), 0, MPC_RNDNN);
  if (name == "i") {
    mpc_set_ui_ui(out.get(), 0, 1, MPC_RNDNN);
  } else if (name == "pi") {
    mpfr_const_pi(out.real(), MPFR_RNDN);
  } else if (name == "gamma") {
    mpfr_const_euler(out.real(), MPFR_RNDN);
  } else if (name == "e") {
    mpfr_set_ui(out.real(), 1, MPFR_RNDN);
    mpfr_exp(out.real(), out.real(), MPFR_RNDN);
  } else {
    throw NoValue();
  }
  return Value(out);
}

Value operator+(const Value& a, const Value& b) {
  if (a.exact() != nullptr && b.exact() != nullptr) return checked(*a.exact() + *b.exact());
  ComplexNumber out;
  mpc_add(out.get(), a.complex().get(), b.complex().get(), MPC_RNDNN);
  return Value(out);
}

Value operator*(const Value& a, const Value& b) {
  if (a.exact() != nullptr && b.exact() != nullptr) return checked(*a.exact() * *b.exact());
  ComplexNumber out;
  mpc_mul(out.get(), a.complex().get(), b.complex().get(), MPC_RNDNN);
  return Value(out);
}

Value operator-(const Value& a, const Value& b) {
  return a + b * Value(-1);
}

Value operator/(const Value& a, const Value& b) {
  return a * power_of(b, Value(-1));
}

Value power_of(const Value& base, const Value& exponent) {
  const mpq_class *b = base.exact(), *e = exponent.exact();
  if (b != nullptr && e != nullptr) {
    if (const auto power = exponent.is_integer() ? integer_power(*b, e->get_num()) : exact_root(*b, *e))
      return Value(*power);
  }
  if (e != nullptr && *e == 0) return Value(1);
  const ComplexNumber x = base.complex();
  if (is_zero(x)) {
    if (!exponent.is_real() || compare_real(exponent, Value(0)) <= 0) throw NoValue();
    return Value(0);
  }
  ComplexNumber out;
  if (exponent.is_integer() && abs(*e) <= 64) {
    mpc_pow_si(out.get(), x.get(), e->get_num().get_si(), MPC_RNDNN);
    return Value(out);
  }
  mpc_log(out.get(), x.get(), MPC_RNDNN);
  mpc_mul(out.get(), out.get(), exponent.complex().get(), MPC_RNDNN);
  if (!is_moderate(out)) throw NoValue();
  mpc_exp(out.get(), out.get(), MPC_RNDNN);
  return Value(out);
}

Value function_value(std::string_view name, const std::vector<Value>& x) {
  const auto found = std::find_if(kFunctions.begin(), kFunctions.end(), [&](const auto& f) { return f.name == name; });
  if (found != kFunctions.end() && x.size() == 1) return complex_function(*found, x[0]);
  if (x.size() == 1) {
    if (name == "percent") return x[0] * Value(mpq_class(1, 100));
    if (name == "factorial" || name == "gamma") return gamma_value(x[0], name == "factorial");
    if (name == "floor" || name == "ceiling") return rounded_to_integer(x[0], name == "floor");
    if (name == "Abs") return absolute(x[0]);
  }
  if (x.size() == 2) {
    if (name == "log") return complex_function(*found, x[0]) / complex_function(*found, x[1]);
    if (name == "binomial") return binomial(x[0], x[1]);
    if (name == "Mod") return x[0] - rounded_to_integer(x[0] / x[1], true) * x[1];
  }
  if (name == "gcd" || name == "lcm") return gcd_or_lcm(x, name == "gcd");
  if (name == "Max" || name == "Min") return extreme(x, name == "Max" ? 1 : -1);
  throw NoValue();
}

bool nearly_equal(const Value& a, const Value& b, long bits) {
  if (a.exact() != nullptr && b.exact() != nullptr) return *a.exact() == *b.exact();
  const ComplexNumber gap = difference(a, b);
  return is_zero(gap) || magnitude(gap) <= std::max(magnitude(a.complex()), magnitude(b.complex())) - bits;
}

bool equal_when_chopped(const Value& a, const Value& b) {
  constexpr mpfr_exp_t kChopped = -54;
  const ComplexNumber gap = difference(a, b);
  return is_zero(gap) || magnitude(gap) <= kChopped;
}

bool equal_when_rounded(const Value& a, const Value& b, int digits) {
  const auto rounded = [digits](const Value& value) {
    ComplexNumber number = value.complex();
    mpfr_t scale;
    mpfr_init2(scale, ComplexNumber::kBits);
    mpfr_ui_pow_ui(scale, 10, static_cast<unsigned long>(digits), MPFR_RNDN);
    mpc_mul_fr(number.get(), number.get(), scale, MPC_RNDNN);
    mpfr_clear(scale);
    mpfr_rint(number.real(), number.real(), MPFR_RNDN);
    mpfr_rint(number.imaginary(), number.imaginary(), MPFR_RNDN);
    return number;
  };
  const ComplexNumber first = rounded(a), second = rounded(b);
  return mpc_cmp(first.get(), second.get()) == 0;
}

int compare_real(const Value& a, const Value& b) {
  if (a.exact() != nullptr && b.exact() != nullptr)
    return cmp(*a.exact(), *b.exact()) < 0 ? -1 : cmp(*a.exact(), *b.exact()) > 0;
  if (nearly_equal(a, b, kExactBits)) return 0;
  return mpfr_cmp(a.complex().real(), b.complex().real()) < 0 ? -1 : 1;
}

}  // namespace tandem::eval
