#include "eval/scoring/final_answer.h"

#include <algorithm>
#include <cctype>

#include "eval/scoring/math_answer.h"
#include "eval/scoring/python_text.h"
#include "eval/scoring/stated_number.h"
#include "eval/scoring/white_space.h"

namespace tandem::eval {
namespace {

std::string_view line_of(std::string_view text) {
  return text.substr(0, text.find('\n'));
}

/// What stands in the braces that `text` begins with; none where they are not closed. "\{" and "\}" are no braces.
std::optional<std::string_view> in_braces(std::string_view text) {
  std::size_t open = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
    } else if (text[i] == '{') {
      ++open;
    } else if (text[i] == '}' && --open == 0) {
      return text.substr(1, i - 1);
    }
  }
  return std::nullopt;
}

/// `text` begins behind the command.
std::optional<std::string_view> in_box(std::string_view text) {
  const std::size_t first = text.find_first_not_of(' ');
  if (first == std::string_view::npos) return std::nullopt;
  if (text[first] == '{') return in_braces(text.substr(first));
  const std::string_view rest = line_of(text);
  return strip(rest.substr(0, rest.find('$')));
}

std::string ascii_lower(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); });
  return lower;
}

std::optional<std::string_view> behind_announcement(std::string_view text) {
  const std::string lower = ascii_lower(text);
  std::size_t at = std::string::npos;
  for (const std::string_view mark : {"answer is", "answer:", "answer**:"}) {
    if (const std::size_t found = lower.rfind(mark); found != std::string::npos)
      at = std::max(at == std::string::npos ? 0 : at, found + mark.size());
  }
  if (at == std::string::npos) return std::nullopt;
  std::string_view behind = strip(text.substr(at));
  while (behind.starts_with('*') || behind.starts_with(':')) behind = strip(behind.substr(1));
  std::string_view rest = strip(line_of(behind));
  for (const auto& [begin, end] : {std::pair{"$", "$"}, {"\\(", "\\)"}, {"`", "`"}}) {
    const std::size_t first = std::string_view(begin).size();
    if (!rest.starts_with(begin)) continue;
    if (const std::size_t last = rest.find(end, first); last != std::string_view::npos)
      rest = rest.substr(first, last - first);
  }
  while (rest.ends_with('.') || rest.ends_with('*')) rest = strip(rest.substr(0, rest.size() - 1));
  return rest.empty() ? std::nullopt : std::optional(rest);
}

bool is_digit_at(std::string_view text, std::size_t at) {
  return at < text.size() && text[at] >= '0' && text[at] <= '9';
}

/// Whether the word behind a number makes it another one.
bool is_changed_behind(std::string_view text) {
  const std::size_t begin = std::min(text.find_first_not_of(" *"), text.size());
  const auto word = text.substr(begin);
  const auto end = std::find_if_not(word.begin(), word.end(),
                                    [](char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; });
  const std::string lower = ascii_lower(word.substr(0, static_cast<std::size_t>(end - word.begin())));
  constexpr std::string_view kGoOn[] = {"and",  "or",   "to",    "times",
                                        "over", "less", "below", "than"};  // with the sentence
  return std::find(std::begin(kGoOn), std::end(kGoOn), lower) == std::end(kGoOn) && changes_value(lower);
}

/// With its sign and commas. A "-" behind a digit or a letter is none. None where the last digits are a part of
/// something else: 1/2, 2^10, 3:45, 1.5e3, 18 thousand.
std::optional<std::string_view> last_number(std::string_view text) {
  std::size_t end = text.size();
  while (end > 0 && !is_digit_at(text, end - 1)) --end;
  if (end == 0) return std::nullopt;
  std::size_t begin = end;
  const auto belongs = [&](std::size_t at) {
    return is_digit_at(text, at) || ((text[at] == ',' || text[at] == '.') && is_digit_at(text, at + 1));
  };
  while (begin > 0 && belongs(begin - 1)) --begin;
  if (begin > 0 && (std::isalnum(static_cast<unsigned char>(text[begin - 1])) != 0 ||
                    std::string_view("/^_\\{").find(text[begin - 1]) != std::string_view::npos ||
                    (text[begin - 1] == ':' && begin > 1 && is_digit_at(text, begin - 2))))
    return std::nullopt;
  if (is_changed_behind(text.substr(end))) return std::nullopt;
  if (begin > 0 && text[begin - 1] == '$') --begin;
  if (begin > 0 && text[begin - 1] == '-' &&
      (begin == 1 || std::isalnum(static_cast<unsigned char>(text[begin - 2])) == 0))
    --begin;
  while (text[begin] == ',') ++begin;
  return text.substr(begin, end - begin);
}

/// Whether a text that begins with a choice has another one beside it: "(A), (D)", "A) or D". "D) A = 3, B = 4" has
/// not.
bool names_others(std::string text, char letter) {
  for (const char* mark : {"\\text{", "}", "$", "*"}) text = replaced(text, mark, " ");
  const auto is_part_of_word = [&](std::size_t at) {
    return at < text.size() && std::isalnum(static_cast<unsigned char>(text[at])) != 0;
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool alone = (i == 0 || !is_part_of_word(i - 1)) && !is_part_of_word(i + 1);
    const std::string_view behind = std::string_view(text).substr(i + 1);
    const bool is_small = text[i] >= 'a' && text[i] <= 'd' && behind.starts_with(')');  // "a" alone is an article
    const char here = is_small ? static_cast<char>(std::toupper(static_cast<unsigned char>(text[i]))) : text[i];
    if (!alone || here < 'A' || here > 'D' || here == letter || strip(behind).starts_with('=')) continue;
    const std::string before = ascii_lower(strip(std::string_view(text).substr(0, i)));
    const bool joined = before.ends_with("or") || before.ends_with("and") || before.ends_with(',') ||
                        before.ends_with('/') || before.ends_with('&') || before.ends_with('(');
    if (joined || behind.starts_with(')')) return true;
  }
  return false;
}

}  // namespace

std::optional<std::string> final_answer(std::string_view text, AnswerKind kind) {
  constexpr std::string_view kThought = "</think>", kOwn = "####";
  if (const std::size_t at = text.rfind(kThought); at != std::string_view::npos)
    text.remove_prefix(at + kThought.size());
  const auto owned = [](std::optional<std::string_view> part) {
    return part ? std::optional<std::string>(strip(*part)) : std::nullopt;
  };
  for (const std::string_view box : {"\\boxed", "\\fbox"}) {
    const std::size_t last = text.rfind(box);
    if (last == std::string_view::npos) continue;
    for (std::size_t at = last; at != std::string_view::npos; at = at == 0 ? at - 1 : text.rfind(box, at - 1)) {
      const auto answer = in_box(text.substr(at + box.size()));
      if (!answer || !strip(*answer).empty()) return owned(answer);
    }
    return "";
  }
  if (const std::size_t at = text.rfind(kOwn); kind == AnswerKind::number && at != std::string_view::npos)
    return owned(line_of(text.substr(at + kOwn.size())));
  if (const auto announced = behind_announcement(text)) return owned(announced);
  return kind == AnswerKind::number ? owned(last_number(text)) : std::nullopt;
}

char choice_of(std::string_view answer) {
  std::string text;
  for (const char c : answer) {
    if (c != '$' && c != ' ' && c != '*') text += c;
  }
  for (const std::string_view wrapper :
       {"\\text{", "\\textbf{", "\\textit{", "\\textrm{", "\\textsf{", "\\mathbf{", "\\mathrm{", "\\underline{"}) {
    if (!text.starts_with(wrapper) || text.find('}') == std::string::npos) continue;
    text.erase(text.find('}'), 1);
    text.erase(0, wrapper.size());
  }
  const bool parenthesis = text.starts_with('(');
  if (parenthesis) text.erase(0, 1);
  if (text.empty()) return 0;
  const char letter = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  if (letter < 'A' || letter > 'D') return 0;
  if (names_others(std::string(answer), letter)) return 0;
  if (text.size() == 1) return parenthesis ? '\0' : letter;
  const bool ends = parenthesis ? text[1] == ')' : std::string_view(").:").find(text[1]) != std::string_view::npos;
  return ends ? letter : '\0';
}

bool same_answer(std::string_view answer, std::string_view reference, AnswerKind kind) {
  switch (kind) {
    case AnswerKind::integer:
    case AnswerKind::number: {
      const auto given = stated_number(answer), wanted = stated_number(reference);
      return given && wanted && *given == *wanted;
    }
    case AnswerKind::letter:
      return choice_of(answer) != 0 && choice_of(answer) == choice_of(reference);
    case AnswerKind::expression:
      return math_equal(answer, reference);
  }
  return false;
}

}  // namespace tandem::eval
