#include "eval/scoring/math_answer.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "eval/scoring/python_text.h"
#include "eval/scoring/stated_number.h"

namespace tandem::eval {
namespace {

/// Where upstream's Python raises an exception.
struct Raised {};

std::vector<std::u32string> split_at(const std::u32string& text, const std::u32string& separator) {
  std::vector<std::u32string> parts;
  std::size_t at = 0;
  for (std::size_t found = text.find(separator); found != std::u32string::npos; found = text.find(separator, at)) {
    parts.push_back(text.substr(at, found - at));
    at = found + separator.size();
  }
  parts.push_back(text.substr(at));
  return parts;
}

std::u32string without_units(const std::u32string& text) {
  const std::vector<std::u32string> parts = split_at(text, U"\\text{ ");
  if (parts.size() > 2) throw Raised();
  return parts.front();
}

std::u32string with_braces_of_roots(const std::u32string& text) {
  const std::vector<std::u32string> parts = split_at(text, U"\\sqrt");
  std::u32string out = parts.front();
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const std::u32string& part = parts[i];
    if (part.empty()) throw Raised();
    out += part[0] == U'{' ? U"\\sqrt" + part : U"\\sqrt{" + part.substr(0, 1) + U"}" + part.substr(1);
  }
  return out;
}

/// "\frac12" and "\frac1{2}"; a fraction that ends the text leaves all as it is.
std::u32string with_braces_of_fractions(const std::u32string& text) {
  const std::vector<std::u32string> parts = split_at(text, U"\\frac");
  std::u32string out = parts.front();
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const std::u32string& part = parts[i];
    if (part.empty()) throw Raised();
    out += U"\\frac";
    if (part[0] == U'{') {
      out += part;
      continue;
    }
    if (part.size() < 2) return text;
    out += U"{" + part.substr(0, 1) + U"}";
    out += part[1] == U'{' ? part.substr(1) : U"{" + part.substr(1, 1) + U"}" + part.substr(2);
  }
  return out;
}

/// A whole number as Python prints it.
bool is_printed_integer(std::u32string_view text) {
  constexpr std::size_t kPythonsMost = 4300;  // digits that int() takes
  const bool negative = text.starts_with(U'-');
  if (negative) text.remove_prefix(1);
  if (text.empty() || text.size() > kPythonsMost) return false;
  if (!std::all_of(text.begin(), text.end(), [](char32_t c) { return c >= U'0' && c <= U'9'; })) return false;
  return text[0] != U'0' || (text.size() == 1 && !negative);
}

std::u32string as_fraction(const std::u32string& text) {
  const std::vector<std::u32string> parts = split_at(text, U"/");
  if (parts.size() != 2 || !is_printed_integer(parts[0]) || !is_printed_integer(parts[1])) return text;
  return U"\\frac{" + parts[0] + U"}{" + parts[1] + U"}";
}

/// In upstream's order, which matters.
std::u32string hendrycks_form(std::string_view answer) {
  std::u32string text = code_points(answer);
  using Pair = std::pair<const char32_t*, const char32_t*>;
  for (const auto& [from, to] :
       {Pair{U"\n", U""}, Pair{U"\\!", U""}, Pair{U"\\\\", U"\\"}, Pair{U"tfrac", U"frac"}, Pair{U"dfrac", U"frac"},
        Pair{U"\\left", U""}, Pair{U"\\right", U""}, Pair{U"^{\\circ}", U""}, Pair{U"^\\circ", U""}, Pair{U"\\$", U""}})
    text = replaced(text, from, to);
  text = without_units(text);
  for (const auto& [from, to] : {Pair{U"\\%", U""}, Pair{U" .", U" 0."}, Pair{U"{.", U"{0."}})
    text = replaced(text, from, to);
  if (text.empty()) return text;
  if (text[0] == U'.') text.insert(text.begin(), U'0');
  if (const auto sides = split_at(text, U"="); sides.size() == 2 && sides[0].size() <= 2) text = sides[1];
  text = with_braces_of_fractions(replaced(with_braces_of_roots(text), U" ", U""));
  return as_fraction(text == U"0.5" ? U"\\frac{1}{2}" : text);
}

std::optional<std::u32string> form_of(std::string_view answer) {
  try {
    return hendrycks_form(answer);
  } catch (const Raised&) {
    return std::nullopt;
  }
}

bool is_letter(char32_t c) {
  return (c >= U'a' && c <= U'z') || (c >= U'A' && c <= U'Z');
}

/// Where the brace that is open before `at` closes; npos where it does not.
std::size_t closing(const std::u32string& text, std::size_t at) {
  for (std::size_t open = 1; at < text.size(); ++at) {
    if (text[at] == U'{') ++open;
    if (text[at] == U'}' && --open == 0) return at;
  }
  return std::u32string::npos;
}

/// Whether all that Hendrycks' rule leaves out of an answer says nothing: what follows "\text{ " is a unit, and what
/// stands before "=" a name. "5 \text{ or } 6" and ">=5" are not 5.
bool drops_nothing_said(const std::u32string& answer) {
  constexpr std::u32string_view kText = U"\\text{ ";
  if (const std::size_t at = answer.find(kText); at != std::u32string::npos) {
    const std::size_t begin = at + kText.size(), end = closing(answer, begin);
    if (end == std::u32string::npos) return false;
    std::string word;
    for (const char32_t c : answer.substr(begin, end - begin) + U" ") {
      if (c >= U'0' && c <= U'9') return false;
      if (is_letter(c)) {
        word += static_cast<char>(c | 0x20);
        continue;
      }
      if (changes_value(word) || word == "not") return false;
      word.clear();
    }
    std::u32string_view behind = std::u32string_view(answer).substr(end + 1);
    for (const std::u32string_view power : {U"^2", U"^3", U"^{2}", U"^{3}"})
      if (behind.starts_with(power)) behind.remove_prefix(power.size());
    if (behind.find_first_not_of(U" .$") != std::u32string_view::npos) return false;
  }
  const std::size_t equals = answer.find(U'=');
  return equals == 0 || equals > 2 ||  // none at all, too
         std::all_of(answer.begin(), answer.begin() + static_cast<std::ptrdiff_t>(equals),
                     [](char32_t c) { return is_letter(c) || c == U' ' || c == U'$' || c > 0x7f; });
}

/// The text without what only looks differently: \text{east} is east, (C) is C, 2516_{8} is 2516_8, x \in [0,1] is
/// [0,1]. All words stay. Empty where nothing is left.
std::u32string bare_form(std::u32string text) {
  using Pair = std::pair<const char32_t*, const char32_t*>;
  constexpr const char32_t* kRowEnd = U"\ue000";  // of a matrix: "\\\\ 1" is no "\\ " and a 1
  for (const auto& [from, to] :
       {Pair{U"\\\\", kRowEnd}, Pair{U"\n", U""}, Pair{U"tfrac", U"frac"}, Pair{U"dfrac", U"frac"},
        Pair{U"\\left", U""}, Pair{U"\\right", U""}, Pair{U"\\!", U""}, Pair{U"\\,", U""}, Pair{U"\\;", U""},
        Pair{U"\\:", U""}, Pair{U"\\ ", U""}, Pair{U"~", U""}, Pair{U"{,}", U","}, Pair{U"\\$", U""}, Pair{U"$", U""}})
    text = replaced(text, from, to);
  for (const std::u32string_view wrapper :
       {U"\\text{", U"\\textbf{", U"\\textit{", U"\\textrm{", U"\\mathrm{", U"\\mathbf{", U"\\mbox{"}) {
    for (std::size_t at = 0; (at = text.find(wrapper, at)) != std::u32string::npos;) {
      const std::size_t end = closing(text, at + wrapper.size());
      if (end == std::u32string::npos) break;
      text.erase(end, 1);
      text.erase(at, wrapper.size());
    }
  }
  text = replaced(text, U" ", U"");
  if (text.size() > 4 && is_letter(text[0]) && std::u32string_view(text).substr(1).starts_with(U"\\in") &&
      !is_letter(text[4]))
    text.erase(0, 4);
  for (std::size_t i = 0; i + 3 < text.size(); ++i) {  // one character needs no braces
    const bool raised = text[i] == U'_' || text[i] == U'^';
    if (raised && text[i + 1] == U'{' && text[i + 3] == U'}' && text[i + 2] != U'{')
      text = text.erase(i + 3, 1).erase(i + 1, 1);
  }
  while (text.ends_with(U'.')) text.pop_back();
  if (text.size() == 3 && text[0] == U'(' && is_letter(text[1]) && text[2] == U')') text = text.substr(1, 1);
  return text;
}

/// A number by itself, with the signs that a number may have around it.
std::optional<Rational> number_of(const std::u32string& form) {
  std::string text = to_utf8(form);
  for (const auto& [from, to] : {std::pair{"{,}", ","}, {"\\,", ","}, {"%", ""}, {"\u00b0", ""}})
    text = replaced(text, from, to);
  std::string_view rest = text;
  if (rest.size() > 1 && rest.starts_with('$') && rest.ends_with('$')) rest = rest.substr(1, rest.size() - 2);
  if (rest.ends_with('.')) rest.remove_suffix(1);
  return plain_number(rest);
}

}  // namespace

bool hendrycks_equal(std::string_view first, std::string_view second) {
  const auto a = form_of(first), b = form_of(second);
  return a && b ? *a == *b : first == second;
}

bool math_equal(std::string_view first, std::string_view second) {
  const auto texts = std::array{replaced(code_points(first), U"\\mbox{ ", U"\\text{ "),
                                replaced(code_points(second), U"\\mbox{ ", U"\\text{ ")};
  const auto bare = std::array{bare_form(texts[0]), bare_form(texts[1])};
  if (bare[0] == bare[1]) return !bare[0].empty() || first == second;
  const auto form = [&](std::size_t i) {
    return drops_nothing_said(texts[i]) ? form_of(to_utf8(texts[i])) : std::optional(bare[i]);
  };
  const std::optional<std::u32string> a = form(0), b = form(1);
  if (!a || !b || a->empty()) return false;
  if (*a == *b) return true;
  const std::optional<Rational> x = number_of(*a), y = number_of(*b);
  return x && y && *x == *y;
}

}  // namespace tandem::eval
