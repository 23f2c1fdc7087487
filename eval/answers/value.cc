#include "eval/answers/value.h"

#include <algorithm>
#include <array>

namespace tandem::eval {
namespace {

constexpr std::size_t kMostBits = std::size_t{1} << 17;  // of an exact number
constexpr mpfr_exp_t kMostExponent = 4096;               // of what goes into a transcendental function
constexpr long kExactBits = 200;                         // of 256, that rounding leaves untouched

std::size_t bits_of(const mpq_class& number) {
  return std::max(mpz_sizeinbase(number.get_num_mpz_t(), 2), mpz_sizeinbase(number.get_den_mpz_t(), 2));
}

MaybeValue checked(mpq_class number) {
  if (bits_of(number) > kMostBits) return std::nullopt;
  return Value(std::move(number));
}

MaybeValue checked(ComplexNumber number) {
  if (mpfr_number_p(mpc_realref(number.get())) == 0 || mpfr_number_p(mpc_imagref(number.get())) == 0)
    return std::nullopt;
  return Value(std::move(number));
}

bool is_zero(const ComplexNumber& number) {
  return mpfr_zero_p(mpc_realref(number.get())) != 0 && mpfr_zero_p(mpc_imagref(number.get())) != 0;
}

/// Neither part is so large that a function of it would need many more bits.
bool is_moderate(const ComplexNumber& number) {
  const auto moderate = [](mpfr_srcptr part) { return mpfr_zero_p(part) != 0 || mpfr_get_exp(part) <= kMostExponent; };
  return moderate(mpc_realref(number.get())) && moderate(mpc_imagref(number.get()));
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
  return std::max(of(mpc_realref(number.get())), of(mpc_imagref(number.get())));
}

/// b^n of rationals without roots.
MaybeValue integer_power(const mpq_class& base, const mpz_class& exponent) {
  if (base == 0 && exponent < 0) return std::nullopt;
  if (base == 0 || base == 1 || exponent == 0) return Value(mpq_class(exponent == 0 || base == 1 ? 1 : 0));
  if (base == -1) return Value(mpq_class(mpz_odd_p(exponent.get_mpz_t()) != 0 ? -1 : 1));
  if (!exponent.fits_slong_p()) return std::nullopt;
  const auto times = static_cast<unsigned long>(std::abs(exponent.get_si()));
  if (bits_of(base) * times > kMostBits) return std::nullopt;
  mpq_class out;
  mpz_pow_ui(out.get_num_mpz_t(), base.get_num_mpz_t(), times);
  mpz_pow_ui(out.get_den_mpz_t(), base.get_den_mpz_t(), times);
  if (exponent < 0) out = 1 / out;
  out.canonicalize();
  return Value(std::move(out));
}

/// base^(p/q) where it is rational; the base is above 0.
MaybeValue exact_root(const mpq_class& base, const mpq_class& exponent) {
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

MaybeValue complex_function(const NamedFunction& which, const Value& argument) {
  ComplexNumber x = argument.complex(), out;
  if (!is_moderate(x)) return std::nullopt;
  if (which.of_inverse) {
    if (is_zero(x)) return std::nullopt;
    mpc_ui_div(x.get(), 1, x.get(), MPC_RNDNN);
  }
  which.function(out.get(), x.get(), MPC_RNDNN);
  if (which.inverse) {
    if (is_zero(out)) return std::nullopt;
    mpc_ui_div(out.get(), 1, out.get(), MPC_RNDNN);
  }
  return checked(std::move(out));
}

MaybeValue gamma_value(const Value& x, bool factorial) {
  constexpr long kMost = 5000;
  if (const mpq_class* whole = x.exact(); whole != nullptr && whole->get_den() == 1) {
    const mpz_class n = whole->get_num() - (factorial ? 0 : 1);
    if (n < 0 || n > kMost) return std::nullopt;
    mpq_class out;
    mpz_fac_ui(out.get_num_mpz_t(), n.get_ui());
    return checked(std::move(out));
  }
  if (!x.is_real()) return std::nullopt;
  ComplexNumber out = x.complex();
  mpfr_ptr real = mpc_realref(out.get());
  if (mpfr_cmp_si(real, kMost) > 0 || mpfr_cmp_si(real, -kMost) < 0) return std::nullopt;
  if (factorial) mpfr_add_ui(real, real, 1, MPFR_RNDN);
  mpfr_gamma(real, real, MPFR_RNDN);
  mpfr_set_zero(mpc_imagref(out.get()), 1);
  return checked(std::move(out));
}

MaybeValue rounded_to_integer(const Value& x, bool down) {
  if (const mpq_class* exact = x.exact()) {
    mpz_class out;
    (down ? mpz_fdiv_q : mpz_cdiv_q)(out.get_mpz_t(), exact->get_num_mpz_t(), exact->get_den_mpz_t());
    return Value(mpq_class(out));
  }
  const ComplexNumber number = x.complex();
  if (!x.is_real() || !is_moderate(number)) return std::nullopt;
  mpz_class out;
  mpfr_get_z(out.get_mpz_t(), mpc_realref(number.get()), down ? MPFR_RNDD : MPFR_RNDU);
  return Value(mpq_class(out));
}

MaybeValue absolute(const Value& x) {
  if (const mpq_class* exact = x.exact()) return Value(mpq_class(abs(*exact)));
  ComplexNumber out;
  mpc_abs(mpc_realref(out.get()), x.complex().get(), MPFR_RNDN);
  mpfr_set_zero(mpc_imagref(out.get()), 1);
  return checked(std::move(out));
}

MaybeValue quotient(const Value& a, const Value& b) {
  const MaybeValue inverse = power_of(b, Value(mpq_class(-1)));
  return inverse ? product_of(a, *inverse) : std::nullopt;
}

MaybeValue minus(const Value& a, const Value& b) {
  const MaybeValue negative = product_of(b, Value(mpq_class(-1)));
  return negative ? sum_of(a, *negative) : std::nullopt;
}

/// n choose k of a whole k that is not large; by gamma functions otherwise.
MaybeValue binomial(const Value& n, const Value& k) {
  const mpq_class* whole = k.exact();
  if (whole != nullptr && whole->get_den() == 1) {
    constexpr long kMost = 2000;
    if (*whole < 0) return Value(mpq_class(0));
    const mpq_class* of = n.exact();
    const bool mirrored = of != nullptr && of->get_den() == 1 && *of >= *whole && *of - *whole < *whole;
    const mpz_class below = mirrored ? mpz_class(of->get_num() - whole->get_num()) : whole->get_num();
    if (below > kMost) return std::nullopt;
    MaybeValue out = Value(mpq_class(1));
    for (long i = 0; out && i < below.get_si(); ++i) {
      const MaybeValue factor = sum_of(n, Value(mpq_class(-i)));
      if (factor) out = product_of(*out, *factor);
      if (factor && out) out = product_of(*out, Value(mpq_class(1, static_cast<unsigned long>(i + 1))));
    }
    return out;
  }
  const MaybeValue rest = minus(n, k);
  const MaybeValue all = gamma_value(n, true), one = gamma_value(k, true);
  const MaybeValue other = rest ? gamma_value(*rest, true) : std::nullopt;
  const MaybeValue both = one && other ? product_of(*one, *other) : std::nullopt;
  return all && both ? quotient(*all, *both) : std::nullopt;
}

MaybeValue gcd_or_lcm(const std::vector<Value>& numbers, bool gcd) {
  mpz_class out = gcd ? 0 : 1;
  for (const Value& number : numbers) {
    const mpq_class* exact = number.exact();
    if (exact == nullptr || exact->get_den() != 1) return std::nullopt;
    (gcd ? mpz_gcd : mpz_lcm)(out.get_mpz_t(), out.get_mpz_t(), exact->get_num_mpz_t());
    if (mpz_sizeinbase(out.get_mpz_t(), 2) > kMostBits) return std::nullopt;
  }
  return Value(mpq_class(out));
}

MaybeValue extreme(const std::vector<Value>& numbers, int sign) {
  if (numbers.empty() || !std::all_of(numbers.begin(), numbers.end(), [](const Value& v) { return v.is_real(); }))
    return std::nullopt;
  return *std::max_element(numbers.begin(), numbers.end(),
                           [sign](const Value& a, const Value& b) { return sign * compare_real(a, b) < 0; });
}

}  // namespace

ComplexNumber Value::complex() const {
  if (rounded_) return *rounded_;
  ComplexNumber out;
  mpc_set_q(out.get(), exact_.get_mpq_t(), MPC_RNDNN);
  return out;
}

bool Value::is_real() const {
  if (!rounded_ || mpfr_zero_p(mpc_imagref(rounded_->get())) != 0) return true;
  if (mpfr_zero_p(mpc_realref(rounded_->get())) != 0) return false;
  return mpfr_get_exp(mpc_imagref(rounded_->get())) < mpfr_get_exp(mpc_realref(rounded_->get())) - kExactBits;
}

MaybeValue constant_value(std::string_view name) {
  ComplexNumber out;
  mpc_set_ui(out.get(), 0, MPC_RNDNN);
  if (name == "i") {
    mpc_set_ui_ui(out.get(), 0, 1, MPC_RNDNN);
  } else if (name == "pi") {
    mpfr_const_pi(mpc_realref(out.get()), MPFR_RNDN);
  } else if (name == "gamma") {
    mpfr_const_euler(mpc_realref(out.get()), MPFR_RNDN);
  } else if (name == "e") {
    mpfr_set_ui(mpc_realref(out.get()), 1, MPFR_RNDN);
    mpfr_exp(mpc_realref(out.get()), mpc_realref(out.get()), MPFR_RNDN);
  } else {
    return std::nullopt;
  }
  return Value(std::move(out));
}

MaybeValue sum_of(const Value& a, const Value& b) {
  if (a.exact() != nullptr && b.exact() != nullptr) return checked(mpq_class(*a.exact() + *b.exact()));
  ComplexNumber out;
  mpc_add(out.get(), a.complex().get(), b.complex().get(), MPC_RNDNN);
  return checked(std::move(out));
}

MaybeValue product_of(const Value& a, const Value& b) {
  if (a.exact() != nullptr && b.exact() != nullptr) return checked(mpq_class(*a.exact() * *b.exact()));
  ComplexNumber out;
  mpc_mul(out.get(), a.complex().get(), b.complex().get(), MPC_RNDNN);
  return checked(std::move(out));
}

MaybeValue power_of(const Value& base, const Value& exponent) {
  const mpq_class *b = base.exact(), *e = exponent.exact();
  if (b != nullptr && e != nullptr) {
    if (e->get_den() == 1) {
      if (MaybeValue exact = integer_power(*b, e->get_num())) return exact;
    } else if (MaybeValue root = exact_root(*b, *e)) {
      return root;
    }
  }
  if (e != nullptr && *e == 0) return Value(mpq_class(1));
  const ComplexNumber x = base.complex();
  if (is_zero(x)) {
    const bool grows = exponent.is_real() && compare_real(exponent, Value(mpq_class(0))) > 0;
    return grows ? MaybeValue(Value(mpq_class(0))) : std::nullopt;
  }
  ComplexNumber out;
  if (e != nullptr && e->get_den() == 1 && abs(*e) <= 64) {
    mpc_pow_si(out.get(), x.get(), e->get_num().get_si(), MPC_RNDNN);
    return checked(std::move(out));
  }
  mpc_log(out.get(), x.get(), MPC_RNDNN);
  mpc_mul(out.get(), out.get(), exponent.complex().get(), MPC_RNDNN);
  if (!is_moderate(out)) return std::nullopt;
  mpc_exp(out.get(), out.get(), MPC_RNDNN);
  return checked(std::move(out));
}

MaybeValue function_value(std::string_view name, const std::vector<Value>& x) {
  const auto found = std::find_if(kFunctions.begin(), kFunctions.end(), [&](const auto& f) { return f.name == name; });
  if (found != kFunctions.end() && x.size() == 1) return complex_function(*found, x[0]);
  if (name == "log" && x.size() == 2) {
    const MaybeValue above = complex_function(*found, x[0]), below = complex_function(*found, x[1]);
    return above && below ? quotient(*above, *below) : std::nullopt;
  }
  if (x.size() == 1) {
    if (name == "percent") return product_of(x[0], Value(mpq_class(1, 100)));
    if (name == "factorial" || name == "gamma") return gamma_value(x[0], name == "factorial");
    if (name == "floor" || name == "ceiling") return rounded_to_integer(x[0], name == "floor");
    if (name == "Abs") return absolute(x[0]);
  }
  if (x.size() == 2) {
    if (name == "binomial") return binomial(x[0], x[1]);
    if (name == "Mod") {
      const MaybeValue ratio = quotient(x[0], x[1]);
      const MaybeValue whole = ratio ? rounded_to_integer(*ratio, true) : std::nullopt;
      const MaybeValue part = whole ? product_of(*whole, x[1]) : std::nullopt;
      return part ? minus(x[0], *part) : std::nullopt;
    }
  }
  if (name == "gcd" || name == "lcm") return gcd_or_lcm(x, name == "gcd");
  if (name == "Max" || name == "Min") return extreme(x, name == "Max" ? 1 : -1);
  return std::nullopt;
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
    mpfr_rint(mpc_realref(number.get()), mpc_realref(number.get()), MPFR_RNDN);
    mpfr_rint(mpc_imagref(number.get()), mpc_imagref(number.get()), MPFR_RNDN);
    return number;
  };
  const ComplexNumber first = rounded(a), second = rounded(b);
  return mpc_cmp(first.get(), second.get()) == 0;
}

int compare_real(const Value& a, const Value& b) {
  if (a.exact() != nullptr && b.exact() != nullptr)
    return cmp(*a.exact(), *b.exact()) < 0 ? -1 : cmp(*a.exact(), *b.exact()) > 0;
  if (nearly_equal(a, b, kExactBits)) return 0;
  return mpfr_cmp(mpc_realref(a.complex().get()), mpc_realref(b.complex().get())) < 0 ? -1 : 1;
}

}  // namespace tandem::eval
