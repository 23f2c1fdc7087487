#include "eval/scoring/choice.h"

#include <algorithm>
#include <vector>

#include "engine/common/error.h"
#include "eval/scoring/python_text.h"

namespace tandem::eval {
namespace {

/// Digits that `text` begins with.
std::u32string_view leading_digits(std::u32string_view text) {
  const auto end = std::find_if_not(text.begin(), text.end(), is_digit);
  return text.substr(0, static_cast<std::size_t>(end - text.begin()));
}

double share_of_numbers(std::u32string_view text, std::u32string_view wanted) {
  std::size_t all = 0, right = 0;
  while (!text.empty()) {
    const auto number = leading_digits(text);
    if (!number.empty()) {
      ++all;
      right += number == wanted ? 1 : 0;
    }
    text.remove_prefix(std::max<std::size_t>(1, number.size()));
  }
  return all == 0 ? 0 : static_cast<double>(right) / static_cast<double>(all);
}

double named_paragraph(std::string_view prediction, std::string_view answer, std::u32string_view name) {
  const std::u32string text = code_points(answer);
  for (std::size_t at = text.find(name); at != text.npos; at = text.find(name, at + 1)) {
    const auto number = leading_digits(std::u32string_view(text).substr(at + name.size()));
    if (!number.empty()) return share_of_numbers(code_points(prediction), number);
  }
  throw_input_error("An answer of a retrieval task is '{}' and must name its paragraph, as in '{}12'.", answer,
                    to_utf8(name));
}

}  // namespace

double classification(std::string_view prediction, std::string_view answer, std::span<const std::string> classes) {
  std::vector<std::string_view> named;
  for (const std::string& name : classes)
    if (prediction.find(name) != prediction.npos) named.emplace_back(name);
  for (std::size_t i = 0; i < named.size(); ++i) {
    const std::string_view name = named[i];
    if (name != answer && answer.find(name) != answer.npos) named.erase(named.begin() + static_cast<std::ptrdiff_t>(i));
  }
  return std::find(named.begin(), named.end(), answer) == named.end() ? 0 : 1.0 / static_cast<double>(named.size());
}

double count_score(std::string_view prediction, std::string_view answer) {
  return share_of_numbers(code_points(prediction), code_points(answer));
}

double retrieval(std::string_view prediction, std::string_view answer) {
  return named_paragraph(prediction, answer, U"Paragraph ");
}

double retrieval_zh(std::string_view prediction, std::string_view answer) {
  return named_paragraph(prediction, answer, U"\u6BB5\u843D");
}

}  // namespace tandem::eval
