// Numbers that expressions have: exact rationals where the arithmetic allows it, else complex ones of 256 bits (MPC).
#pragma once

#include <gmpxx.h>
#include <memory>
#include <mpc.h>
#include <string_view>
#include <vector>

namespace tandem::eval {

/// Thrown where a number does not exist or would cost too much: exact ones end at 2^17 bits.
struct NoValue {};

/// An mpc_t that is copied and freed as a value.
class ComplexNumber {
 public:
  ComplexNumber() { mpc_init2(number_, kBits); }
  ComplexNumber(const ComplexNumber& other) : ComplexNumber() { mpc_set(number_, other.number_, MPC_RNDNN); }
  ComplexNumber& operator=(const ComplexNumber&) = delete;
  ~ComplexNumber() { mpc_clear(number_); }

  mpc_ptr get() { return number_; }
  mpc_srcptr get() const { return number_; }
  mpfr_ptr real() { return mpc_realref(number_); }
  mpfr_srcptr real() const { return mpc_realref(number_); }
  mpfr_ptr imaginary() { return mpc_imagref(number_); }
  mpfr_srcptr imaginary() const { return mpc_imagref(number_); }

  static constexpr mpfr_prec_t kBits = 256;

 private:
  mpc_t number_;
};

class Value {
 public:
  explicit Value(mpq_class exact) : exact_(std::move(exact)) {}
  /// NoValue for infinity and what is no number.
  explicit Value(const ComplexNumber& number);

  const mpq_class* exact() const { return rounded_ ? nullptr : &exact_; }
  bool is_integer() const { return !rounded_ && exact_.get_den() == 1; }  // an exact one
  ComplexNumber complex() const;
  /// Rounding apart: the imaginary part is below 2^-200 of the number.
  bool is_real() const;

 private:
  mpq_class exact_;
  std::shared_ptr<const ComplexNumber> rounded_;  // where it is not exact
};

/// "pi", "e", "i" or "gamma" (Euler's constant).
Value constant_value(std::string_view name);

Value operator+(const Value& a, const Value& b);
Value operator-(const Value& a, const Value& b);
Value operator*(const Value& a, const Value& b);
Value operator/(const Value& a, const Value& b);
/// The principal value. 0^0 is 1.
Value power_of(const Value& base, const Value& exponent);
/// A function by its name in sympy: sin, acosh, log, factorial, floor, Abs, binomial, gcd, Mod, Max, ...
Value function_value(std::string_view name, const std::vector<Value>& arguments);

/// The distance of two numbers is at most 2^-`bits` of the larger one.
bool nearly_equal(const Value& a, const Value& b, long bits);
/// The distance is below 2^-54, what sympy's evalf(chop=True) of 15 digits makes zero.
bool equal_when_chopped(const Value& a, const Value& b);
/// Both round to the same multiple of 10^-digits.
bool equal_when_rounded(const Value& a, const Value& b, int digits);
/// -1, 0 or 1. Both must be real.
int compare_real(const Value& a, const Value& b);

}  // namespace tandem::eval
