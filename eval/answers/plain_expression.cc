#include "eval/answers/plain_expression.h"

#include <algorithm>
#include <string>

#include "eval/scoring/python_text.h"

namespace tandem::eval {
namespace {

struct NoExpression {};

bool is_plain_digit(char c) {
  return c >= '0' && c <= '9';
}

class PlainReader {
 public:
  explicit PlainReader(std::string_view text) : rest_(text) { skip(); }

  Expr whole() {
    Expr out = sum();
    if (!rest_.empty()) throw NoExpression();
    return out;
  }

 private:
  void skip() { rest_.remove_prefix(std::min(rest_.find_first_not_of(" \t\r\n\f\v"), rest_.size())); }

  bool take(std::string_view word) {
    if (!rest_.starts_with(word)) return false;
    rest_.remove_prefix(word.size());
    skip();
    return true;
  }

  void deeper() {
    constexpr int kMostDepth = 100;
    if (++depth_ > kMostDepth) throw NoExpression();
  }

  Expr sum() {
    Expr out = product();
    for (;;) {
      if (take("+")) {
        out = make_sum(out, product());
      } else if (take("-")) {
        out = make_sum(out, make_product(make_number(-1), product()));
      } else {
        return out;
      }
    }
  }

  Expr product() {
    Expr out = factor();
    for (;;) {
      if (rest_.starts_with("**")) throw NoExpression();
      if (take("*")) {
        out = make_product(out, factor());
      } else if (take("//")) {
        out = make_node(Form::call, "floor", {inverse_product(out, factor())});
      } else if (take("/")) {
        out = inverse_product(out, factor());
      } else {
        return out;
      }
    }
  }

  static Expr inverse_product(const Expr& a, const Expr& b) { return make_product(a, make_power(b, make_number(-1))); }

  Expr factor() {
    if (take("+")) {
      deeper();
      Expr out = factor();
      --depth_;
      return out;
    }
    if (take("-")) {
      deeper();
      Expr out = make_negative(factor());
      --depth_;
      return out;
    }
    const Expr base = atom();
    if (!take("**")) return base;
    deeper();
    Expr out = make_power(base, factor());
    --depth_;
    return out;
  }

  Expr atom() {
    if (take("(")) {
      deeper();
      Expr out = sum();
      --depth_;
      if (!take(")")) throw NoExpression();
      return out;
    }
    const auto not_number = [](char c) { return !is_plain_digit(c) && c != '.'; };
    const auto end = std::find_if(rest_.begin(), rest_.end(), not_number);
    const std::string word(rest_.begin(), end);
    const auto dots = std::count(word.begin(), word.end(), '.');
    const bool is_number = dots <= 1 && std::any_of(word.begin(), word.end(), is_plain_digit);
    const bool is_octal = dots == 0 && word.size() > 1 && word[0] == '0' && word.find_first_not_of('0') != word.npos;
    if (!is_number || is_octal) throw NoExpression();
    rest_.remove_prefix(word.size());
    skip();
    std::string digits = word;
    std::erase(digits, '.');
    mpq_class number(mpz_class(digits, 10));
    mpz_class scale;
    mpz_ui_pow_ui(scale.get_mpz_t(), 10, dots == 0 ? 0 : word.size() - word.find('.') - 1);
    number /= scale;
    return make_number(number, dots != 0);
  }

  std::string_view rest_;
  int depth_ = 0;
};

}  // namespace

Expr read_plain(std::string_view text) {
  constexpr std::size_t kLongest = 2000;
  if (text.size() > kLongest) return nullptr;
  const std::string python = replaced(text, "^", "**");
  try {
    return PlainReader(python).whole();
  } catch (const NoExpression&) {
    return nullptr;
  }
}

}  // namespace tandem::eval
