#include "eval/answers/boxes.h"

#include <optional>
#include <vector>

#include "eval/answers/pattern.h"
#include "eval/scoring/python_text.h"
#include "eval/scoring/white_space.h"

namespace tandem::eval {
namespace {

/// Where the box's brace that is open at `open` closes before `end`.
std::optional<std::size_t> closing(std::string_view text, std::size_t open, std::size_t end) {
  std::size_t depth = 1;
  for (std::size_t i = open + 1; i < end; ++i) {
    if (text[i] == '{') ++depth;
    if (text[i] == '}' && --depth == 0) return i;
  }
  return std::nullopt;
}

/// Whether two boxes with this between them are parts of one answer.
bool stand_together(std::string_view between, bool differ) {
  constexpr std::size_t kNear = 10, kFar = 70;
  if (between.size() >= 4 * kFar) return false;
  const std::size_t length = code_points(between).size();
  if (length < kNear) return true;
  static const Pattern separator(R"(\b(?:and|or)\b|,|;)");
  return differ && length < kFar && separator.finds(between);
}

}  // namespace

std::string boxed_content(std::string_view text, Boxes boxes) {
  std::vector<std::string> found;  // from the last to the first
  std::optional<std::size_t> later;
  std::size_t end = text.size();
  for (std::size_t at = text.rfind("box"); at != text.npos; at = at == 0 ? text.npos : text.rfind("box", at - 1)) {
    std::size_t start = 0, open = 0;
    if (at >= 1 && text.substr(at - 1).starts_with("\\boxed")) {
      start = at - 1;
      open = start + 6;
    } else if (at >= 2 && text.substr(at - 2).starts_with("\\fbox")) {
      start = at - 2;
      open = start + 5;
    } else {
      continue;
    }
    while (open < end && leading_space(text.substr(open)) > 0) open += leading_space(text.substr(open));
    if (open >= end) break;
    const std::optional<std::size_t> close = text[open] == '{' ? closing(text, open, end) : std::nullopt;
    if (!close) {
      if (found.empty()) found.emplace_back(text.substr(open));
      break;
    }
    const std::string content(strip(text.substr(open + 1, *close - open - 1)));
    if (boxes == Boxes::last && later) {
      const bool differ = found.back() != content;
      if (!stand_together(text.substr(*close + 1, *later - *close - 1), differ)) break;
    }
    if (found.empty() || found.back() != content) found.push_back(content);
    later = end = start;
  }
  if (found.empty()) return std::string(text);
  std::string out;
  for (auto one = found.rbegin(); one != found.rend(); ++one) out += (one == found.rbegin() ? "" : ",") + *one;
  return out;
}

}  // namespace tandem::eval
