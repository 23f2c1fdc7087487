#include "eval/scoring/string_match.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fmt/format.h>

namespace tandem::eval {
namespace {

/// Bytes of the white space at the beginning of `text`, 0 if there is none: the characters of Python's str.isspace().
std::size_t leading_space(std::string_view text) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const unsigned a = byte(0), b = byte(1), c = byte(2);
  if (text.empty()) return 0;
  if ((a >= 0x09 && a <= 0x0d) || (a >= 0x1c && a <= 0x20)) return 1;
  if (a == 0xc2 && (b == 0x85 || b == 0xa0)) return 2;
  if (a == 0xe1 && b == 0x9a && c == 0x80) return 3;  // U+1680
  if (a == 0xe2 && b == 0x80 && ((c >= 0x80 && c <= 0x8a) || c == 0xa8 || c == 0xa9 || c == 0xaf)) return 3;
  if (a == 0xe2 && b == 0x81 && c == 0x9f) return 3;  // U+205F
  if (a == 0xe3 && b == 0x80 && c == 0x80) return 3;  // U+3000
  return 0;
}

std::string_view strip(std::string_view text) {
  while (const std::size_t n = leading_space(text)) text.remove_prefix(n);
  for (bool again = true; again;) {
    again = false;
    for (std::size_t n = 1; n <= 3 && n <= text.size(); ++n) {
      if (leading_space(text.substr(text.size() - n)) != n) continue;
      text.remove_suffix(n);
      again = true;
      break;
    }
  }
  return text;
}

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
  // Decimal text and back: Python's round() also rounds the exact binary value to the nearest decimal.
  return std::strtod(fmt::format("{:.2f}", sum / static_cast<double>(scores.size()) * 100).c_str(), nullptr);
}

}  // namespace tandem::eval
