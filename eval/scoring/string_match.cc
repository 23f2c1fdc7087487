#include "eval/scoring/string_match.h"

#include <algorithm>

#include "eval/scoring/python_text.h"

namespace tandem::eval {
namespace {

std::size_t found(std::string_view prediction, std::span<const std::string> references) {
  const std::string text = lower(prediction);
  return static_cast<std::size_t>(
      std::count_if(references.begin(), references.end(),
                    [&](const std::string& reference) { return text.find(lower(reference)) != std::string::npos; }));
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
