#include "eval/answers/text_rules.h"

#include <algorithm>
#include <cctype>

#include "eval/answers/latex_normal.h"
#include "eval/answers/pattern.h"
#include "eval/scoring/python_text.h"

namespace tandem::eval {
namespace {

constexpr auto kBytes = Pattern::Of::bytes;  // of texts with any bytes, in which these expressions look for ASCII

/// The first group of the first match.
FoundText first_in(std::string_view text, const Pattern& pattern) {
  const Pattern::Parts match = pattern.first(text);
  return match.empty() ? std::nullopt : FoundText(match[1]);
}

/// Without the commands that only change how letters look, $ and *.
std::string bare(std::string_view answer) {
  std::string text(answer);
  for (const char* mark : {"$", "*", "\\ ", "\\,", "\\;", "~", "\\left", "\\right"}) text = replaced(text, mark, " ");
  static const Pattern wrapper(R"(\\(?:text(?:bf|it|rm|sf|normal)?|math(?:bf|rm|it|sf)|mbox|underline|boxed)\s*\{)");
  text = wrapper.replaced(text, " ");
  return replaced(replaced(text, "{", " "), "}", " ");
}

}  // namespace

FoundText marked_line(std::string_view text) {
  static const Pattern pattern(R"((?m)^#### (-?[0-9.,]+))", kBytes);
  return first_in(text, pattern);
}

FoundText strict_match(std::string_view text) {
  static const Pattern pattern(R"(#### (-?[0-9.,]+))", kBytes);
  return first_in(text, pattern);
}

FoundText cot_strict_match(std::string_view text) {
  static const Pattern pattern(R"(The answer is (-?[0-9.,]+).)", kBytes);
  return first_in(text, pattern);
}

FoundText flexible_extract(std::string_view text) {
  static const Pattern pattern(R"(-?[$0-9.,]{2,}|-?[0-9]+)", kBytes);
  const auto all = pattern.all(text);
  return all.empty() ? std::nullopt : FoundText(all.back()[0]);
}

bool same_number_text(std::string_view a, std::string_view b) {
  const auto cleaned = [](std::string_view text) {
    constexpr std::string_view kMarker = "#### ";
    std::string out(text);
    std::erase_if(out, [](char c) { return c == ',' || c == '$'; });
    if (const std::size_t marker = out.rfind(kMarker); marker != out.npos) out.erase(0, marker + kMarker.size());
    if (out.ends_with(".\n")) out.erase(out.size() - 2, 1);
    if (out.ends_with('.')) out.pop_back();
    return lower(out);
  };
  return cleaned(a) == cleaned(b);
}

FoundText answer_line(std::string_view text) {
  static const Pattern pattern(R"((?i)answer[ \t]*:[ \t]*\$?([a-d]))", kBytes);
  return first_in(text, pattern);
}

FoundText answer_sentence(std::string_view text) {
  static const Pattern pattern(R"(answer is \(?([A-J]))", kBytes);
  return first_in(text, pattern);
}

FoundText boxed_letter(std::string_view text) {
  constexpr std::string_view kBoxCommand = "\\boxed";
  constexpr std::size_t kLongest = 1000;  // of an answer that begins with a choice
  for (std::size_t at = text.rfind(kBoxCommand); at != text.npos;
       at = at == 0 ? text.npos : text.rfind(kBoxCommand, at - 1)) {
    std::string_view content = text.substr(at + kBoxCommand.size(), kLongest);
    content.remove_prefix(std::min(content.find_first_not_of(' '), content.size()));
    if (content.starts_with('{')) {
      const std::size_t close = closing_brace(content, 0);
      content = close != content.npos ? content.substr(1, close - 1) : std::string_view();
    } else {
      content = content.substr(0, content.find_first_of(" \n$.,"));
    }
    if (const auto choice = choice_of(content)) return std::string(1, *choice);
  }
  return std::nullopt;
}

std::optional<char> choice_of(std::string_view answer) {
  const std::string text(strip(bare(answer)));
  static const Pattern begins(
      R"(^(?i:(?:option|choice|answer)\b\s*:?\s*)?(\(?)\s*([A-Da-d])\s*(\)|[.:,;]|\x{2013}|\x{2014}|-\s|$))");
  const Pattern::Parts parts = begins.first(text);
  if (parts.empty() || (!parts[1].empty() && parts[3] != ")")) return std::nullopt;
  const auto upper = [](char c) { return static_cast<char>(std::toupper(static_cast<unsigned char>(c))); };
  const char letter = upper(parts[2][0]);
  // "(A), (D)" and "A) or D" name two; "D) A = 3, B = 4" does not.
  static const Pattern another(
      R"((?i:\bor|\band|[,/&(])\s*\(?([A-Da-d])\b(?!\s*=)(?=\)|\s*$|[.,]?\s*$)|(?:\bor|\bOR|\band|&|/|,)\s*\(?([A-D])\b(?!\s*=)|\(([A-Da-d])\)|\b([A-Da-d])\))");
  for (const Pattern::Parts& more : another.all(text, parts[0].size() - parts[3].size()))
    if (upper(more[group_of(more)][0]) != letter) return std::nullopt;
  return letter;
}

}  // namespace tandem::eval
