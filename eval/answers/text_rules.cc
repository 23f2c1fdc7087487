#include "eval/answers/text_rules.h"

#include <algorithm>
#include <cctype>
#include <vector>

#include "eval/answers/pattern.h"
#include "eval/scoring/python_text.h"
#include "eval/scoring/white_space.h"

namespace tandem::eval {
namespace {

constexpr std::string_view kMarker = "#### ";

bool is_figure(char c) {
  return c >= '0' && c <= '9';
}

template <typename Is>
std::string_view leading(std::string_view text, Is is) {
  return text.substr(0, static_cast<std::size_t>(std::find_if_not(text.begin(), text.end(), is) - text.begin()));
}

/// -?[0-9.,]+
std::string_view leading_number(std::string_view text) {
  const std::size_t sign = text.starts_with('-') ? 1 : 0;
  const std::string_view digits =
      leading(text.substr(sign), [](char c) { return is_figure(c) || c == '.' || c == ','; });
  return digits.empty() ? std::string_view() : text.substr(0, sign + digits.size());
}

FoundText behind_marker(std::string_view text, bool begins_line) {
  for (std::size_t at = text.find(kMarker); at != text.npos; at = text.find(kMarker, at + 1)) {
    const std::string_view number = leading_number(text.substr(at + kMarker.size()));
    const bool is_placed = !begins_line || at == 0 || text[at - 1] == '\n';
    if (!number.empty() && is_placed) return std::string(number);
  }
  return std::nullopt;
}

std::string lower_ascii(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return out;
}

/// Without the commands that only change how letters look, $ and *.
std::string bare(std::string_view answer) {
  std::string text(answer);
  for (const char* mark : {"$", "*", "\\ ", "\\,", "\\;", "~", "\\left", "\\right"}) text = replaced(text, mark, " ");
  static const Pattern wrapper(R"(\\(?:text(?:bf|it|rm|sf|normal)?|math(?:bf|rm|it|sf)|mbox|underline|boxed)\s*\{)");
  text = wrapper.replaced(text, [](const auto&) { return " "; });
  return replaced(replaced(text, "{", " "), "}", " ");
}

}  // namespace

FoundText marked_line(std::string_view text) {
  return behind_marker(text, true);
}

FoundText strict_match(std::string_view text) {
  return behind_marker(text, false);
}

FoundText cot_strict_match(std::string_view text) {
  constexpr std::string_view kSaid = "The answer is ";
  for (std::size_t at = text.find(kSaid); at != text.npos; at = text.find(kSaid, at + 1)) {
    std::string_view number = leading_number(text.substr(at + kSaid.size()));
    if (number.empty()) continue;
    // A character other than a line end has to follow: where none does, the number gives its last one up.
    const std::size_t end = at + kSaid.size() + number.size();
    if (end == text.size() || text[end] == '\n') number.remove_suffix(1);
    if (!number.empty() && number != "-") return std::string(number);
  }
  return std::nullopt;
}

FoundText flexible_extract(std::string_view text) {
  FoundText last;
  const auto belongs = [](char c) { return is_figure(c) || c == '$' || c == '.' || c == ','; };
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t sign = text[at] == '-' ? 1 : 0;
    const std::string_view rest = text.substr(at + sign);
    std::size_t length = leading(rest, belongs).size();
    if (length < 2) length = leading(rest, is_figure).size();
    if (length == 0) {
      ++at;
      continue;
    }
    last = std::string(text.substr(at, sign + length));
    at += sign + length;
  }
  return last;
}

bool same_number_text(std::string_view a, std::string_view b) {
  const auto cleaned = [](std::string_view text) {
    std::string out(text);
    std::erase_if(out, [](char c) { return c == ',' || c == '$'; });
    if (const std::size_t marker = out.rfind(kMarker); marker != out.npos) out.erase(0, marker + kMarker.size());
    if (out.ends_with(".\n")) out.erase(out.size() - 2, 1);
    if (out.ends_with('.')) out.pop_back();
    return to_utf8(lower(code_points(out)));
  };
  return cleaned(a) == cleaned(b);
}

FoundText answer_line(std::string_view text) {
  const std::string small = lower_ascii(text);
  constexpr std::string_view kSaid = "answer";
  const auto blanks = [&](std::size_t at) {
    return at + leading(std::string_view(small).substr(at), [](char c) { return c == ' ' || c == '\t'; }).size();
  };
  for (std::size_t at = small.find(kSaid); at != small.npos; at = small.find(kSaid, at + 1)) {
    std::size_t letter = blanks(at + kSaid.size());
    if (letter >= small.size() || small[letter] != ':') continue;
    letter = blanks(letter + 1);
    if (letter < small.size() && small[letter] == '$') ++letter;
    if (letter < small.size() && small[letter] >= 'a' && small[letter] <= 'd') return std::string(1, text[letter]);
  }
  return std::nullopt;
}

FoundText answer_sentence(std::string_view text) {
  constexpr std::string_view kSaid = "answer is ";
  for (std::size_t at = text.find(kSaid); at != text.npos; at = text.find(kSaid, at + 1)) {
    std::size_t letter = at + kSaid.size();
    if (letter < text.size() && text[letter] == '(') ++letter;
    if (letter < text.size() && text[letter] >= 'A' && text[letter] <= 'J') return std::string(1, text[letter]);
  }
  return std::nullopt;
}

FoundText boxed_letter(std::string_view text) {
  constexpr std::string_view kBoxCommand = "\\boxed";
  constexpr std::size_t kLongest = 1000;  // of an answer that begins with a choice
  for (std::size_t at = text.rfind(kBoxCommand); at != text.npos;
       at = at == 0 ? text.npos : text.rfind(kBoxCommand, at - 1)) {
    std::string_view content = text.substr(at + kBoxCommand.size(), kLongest);
    content.remove_prefix(leading(content, [](char c) { return c == ' '; }).size());
    if (content.starts_with('{')) {
      std::size_t depth = 0, end = 0;
      for (; end < content.size(); ++end) {
        if (content[end] == '{') ++depth;
        if (content[end] == '}' && --depth == 0) break;
      }
      content = end < content.size() ? content.substr(1, end - 1) : std::string_view();
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
  const std::vector<std::string_view> parts = begins.first(text, 0);
  if (parts.empty() || (!parts[1].empty() && parts[3] != ")")) return std::nullopt;
  const auto upper = [](char c) { return static_cast<char>(std::toupper(static_cast<unsigned char>(c))); };
  const char letter = upper(parts[2][0]);
  // "(A), (D)" and "A) or D" name two; "D) A = 3, B = 4" does not.
  static const Pattern another(
      R"((?i:\bor|\band|[,/&(])\s*\(?([A-Da-d])\b(?!\s*=)(?=\)|\s*$|[.,]?\s*$)|(?:\bor|\bOR|\band|&|/|,)\s*\(?([A-D])\b(?!\s*=)|\(([A-Da-d])\)|\b([A-Da-d])\))");
  std::size_t from = parts[0].size() - parts[3].size();
  for (auto more = another.first(text, from); !more.empty(); more = another.first(text, from)) {
    const auto named = std::find_if(more.begin() + 1, more.end(), [](auto part) { return !part.empty(); });
    if (named != more.end() && upper((*named)[0]) != letter) return std::nullopt;
    from = static_cast<std::size_t>(more[0].data() - text.data()) + std::max<std::size_t>(1, more[0].size());
  }
  return letter;
}

}  // namespace tandem::eval
