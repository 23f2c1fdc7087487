#include "eval/answers/latex_symbols.h"

#include <algorithm>
#include <array>

#include "eval/scoring/python_text.h"
#include "eval/scoring/white_space.h"

namespace tandem::eval {
namespace {

struct Letter {
  std::string_view letter, name;
};

constexpr auto kGreek = std::to_array<Letter>({
    {"\u03b1", "alpha"},  {"\u03b2", "beta"},    {"\u03b3", "gamma"},      {"\u0393", "Gamma"}, {"\u03b4", "delta"},
    {"\u0394", "Delta"},  {"\u03b5", "epsilon"}, {"\u03f5", "varepsilon"}, {"\u03b6", "zeta"},  {"\u03b7", "eta"},
    {"\u03b8", "theta"},  {"\u0398", "Theta"},   {"\u03d1", "vartheta"},   {"\u03b9", "iota"},  {"\u03ba", "kappa"},
    {"\u03bb", "lambda"}, {"\u039b", "Lambda"},  {"\u03bc", "mu"},         {"\u03bd", "nu"},    {"\u03be", "xi"},
    {"\u039e", "Xi"},     {"\u03bf", "omicron"}, {"\u03c0", "pi"},         {"\u03a0", "Pi"},    {"\u03d6", "varpi"},
    {"\u03c1", "rho"},    {"\u03f1", "varrho"},  {"\u03c3", "sigma"},      {"\u03a3", "Sigma"}, {"\u03c2", "varsigma"},
    {"\u03c4", "tau"},    {"\u03c5", "upsilon"}, {"\u03a5", "Upsilon"},    {"\u03c6", "phi"},   {"\u03a6", "Phi"},
    {"\u03d5", "varphi"}, {"\u03c7", "chi"},     {"\u03c8", "psi"},        {"\u03a8", "Psi"},   {"\u03c9", "omega"},
    {"\u03a9", "Omega"},
});

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

}  // namespace

std::string lower_case(std::string_view text) {
  return to_utf8(lower(code_points(text)));
}

Expr make_symbol(std::string name, bool is_complex) {
  Expression out;
  out.form = Form::symbol;
  out.name = std::move(name);
  out.is_complex = is_complex;
  return std::make_shared<const Expression>(std::move(out));
}

Expr named_symbol(std::string_view word, const std::string& subscript, bool is_complex) {
  if (word == "I") return make_node(Form::constant, "i", {});
  const bool has_accent = word.starts_with('\\') && word.find('{') != std::string_view::npos;
  std::string name = has_accent ? accented(word) : std::string(strip(word));
  if (!subscript.empty()) name += code_points(subscript).size() > 1 ? "_{" + subscript + "}" : "_" + subscript;
  const auto greek = std::find_if(kGreek.begin(), kGreek.end(), [&](const Letter& one) { return one.letter == name; });
  if (greek != kGreek.end()) name = greek->name;
  if (name.starts_with('\\')) name.erase(0, 1);
  for (int i = 0; i < 2; ++i) {
    if (name == "pi") return make_node(Form::constant, "pi", {});
    if (name == "gamma" || name == "Gamma") return make_node(Form::constant, "gamma", {});
    name = lower_case(name);
  }
  return make_symbol(std::move(name), is_complex);
}

int infinite_sign(const Expr& e) {
  if (is(e, Form::constant) && e->name == "infinity") return 1;
  const bool is_negative = is(e, Form::product) && e->parts.size() == 2 && is_integer(e->parts[0]) &&
                           e->parts[0]->number == -1 && infinite_sign(e->parts[1]) == 1;
  return is_negative ? -1 : 0;
}

std::optional<int> order_of(const Expr& a, const Expr& b) {
  const int first = infinite_sign(a), second = infinite_sign(b);
  if (!symbols_of(a).empty() || !symbols_of(b).empty()) return std::nullopt;
  const MaybeValue x = value_at(a, 0), y = value_at(b, 0);
  const bool x_is_real = x && x->is_real(), y_is_real = y && y->is_real();
  if ((first == 0 && !x_is_real) || (second == 0 && !y_is_real)) return std::nullopt;
  if (first != second) return first < second ? -1 : 1;
  return x && y ? compare_real(*x, *y) : 0;
}

}  // namespace tandem::eval
