#include "eval/scoring/token_f1.h"

#include <unordered_map>
#include <vector>

#include "eval/scoring/normalise.h"
#include "eval/scoring/python_text.h"

namespace tandem::eval {
namespace {

std::vector<std::string> normal_words(std::string_view text) {
  const std::string normal = normalise_answer(text);
  const auto words = split_words(normal);
  return {words.begin(), words.end()};
}

std::vector<std::string> normal_words(std::span<const std::string> words) {
  std::vector<std::string> result;
  for (const std::string& word : words) {
    std::string normal = normalise_chinese_answer(word);
    if (!normal.empty()) result.push_back(std::move(normal));
  }
  return result;
}

}  // namespace

double f1_of_counts(std::size_t same, std::size_t prediction, std::size_t answer) {
  if (same == 0) return 0;
  // In upstream's order, as far as rounding goes.
  const double precision = static_cast<double>(same) / static_cast<double>(prediction);
  const double recall = static_cast<double>(same) / static_cast<double>(answer);
  return 2 * precision * recall / (precision + recall);
}

double f1_of_words(std::span<const std::string> prediction, std::span<const std::string> answer) {
  std::unordered_map<std::string_view, std::size_t> left;
  for (const std::string& word : answer) ++left[word];
  std::size_t same = 0;
  for (const std::string& word : prediction) {
    std::size_t& count = left[word];
    same += count > 0 ? 1 : 0;
    count -= count > 0 ? 1 : 0;
  }
  return f1_of_counts(same, prediction.size(), answer.size());
}

double qa_f1(std::string_view prediction, std::string_view answer) {
  return f1_of_words(normal_words(prediction), normal_words(answer));
}

double qa_f1_zh(std::span<const std::string> prediction, std::span<const std::string> answer) {
  return f1_of_words(normal_words(prediction), normal_words(answer));
}

}  // namespace tandem::eval
