#include "eval/scoring/string_match.h"

#include <algorithm>

#include "eval/scoring/rounding.h"
#include "eval/scoring/white_space.h"

namespace tandem::eval {
namespace {

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return result;
}

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

double task_score(std::span<const double> scores) {
  if (scores.empty()) return 0;
  double sum = 0;
  for (const double score : scores) sum += score;
  return round_to_hundredths(sum / static_cast<double>(scores.size()) * 100);
}

}  // namespace tandem::eval
