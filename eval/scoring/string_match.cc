#include "eval/scoring/string_match.h"

#include <algorithm>

#include "eval/scoring/python_text.h"
#include "eval/scoring/white_space.h"

namespace tandem::eval {
namespace {

/// UTF-8, in which a text is part of another where its code points are.
std::string lowered(std::string_view text) {
  if (std::any_of(text.begin(), text.end(), [](char c) { return (c & 0x80) != 0; }))
    return to_utf8(lower(code_points(text)));
  std::string result(text);
  for (char& c : result)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return result;
}

std::size_t found(std::string_view prediction, std::span<const std::string> references) {
  const std::string text = lowered(prediction);
  return static_cast<std::size_t>(
      std::count_if(references.begin(), references.end(),
                    [&](const std::string& reference) { return text.find(lowered(reference)) != std::string::npos; }));
}

}  // namespace

std::string postprocess_prediction(std::string_view prediction) {
  std::string text(strip(prediction));
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20) c = '\n';
  return std::string(strip(text));
}

double string_match_all(std::string_view prediction, std::span<const std::string> references) {
  if (references.empty()) return 0;
  return static_cast<double>(found(prediction, references)) / static_cast<double>(references.size());
}

double string_match_part(std::string_view prediction, std::span<const std::string> references) {
  return found(prediction, references) > 0 ? 1.0 : 0.0;
}

}  // namespace tandem::eval
