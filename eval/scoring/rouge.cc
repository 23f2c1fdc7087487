#include "eval/scoring/rouge.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "eval/scoring/python_text.h"

namespace tandem::eval {
namespace {

using NumberedWords = std::vector<std::uint32_t>;  // numbers in place of texts

/// NumberedWords of texts, the same word as the same number.
class Vocabulary {
 public:
  NumberedWords words_of(std::string_view text) {
    NumberedWords words;
    std::string word;
    const auto end = [&] {
      if (!word.empty())
        words.push_back(numbers_.try_emplace(word, static_cast<std::uint32_t>(numbers_.size())).first->second);
      word.clear();
    };
    for (const char32_t c : lower(code_points(text))) {
      if ((c >= U'a' && c <= U'z') || (c >= U'0' && c <= U'9')) {
        word += static_cast<char>(c);
      } else {
        end();
      }
    }
    end();
    return words;
  }

 private:
  std::map<std::string, std::uint32_t> numbers_;
};

double rouge_f(double precision, double recall) {
  return precision + recall > 0 ? 2 * precision * recall / (precision + recall) : 0;
}

template <class Gram>
double of_grams(const std::map<Gram, std::uint64_t>& answer, const std::map<Gram, std::uint64_t>& prediction) {
  std::uint64_t common = 0, of_answer = 0, of_prediction = 0;
  for (const auto& [gram, count] : answer) {
    of_answer += count;
    const auto found = prediction.find(gram);
    if (found != prediction.end()) common += std::min(count, found->second);
  }
  for (const auto& [gram, count] : prediction) of_prediction += count;
  return rouge_f(double(common) / double(std::max<std::uint64_t>(of_prediction, 1)),
                 double(common) / double(std::max<std::uint64_t>(of_answer, 1)));
}

std::map<std::uint32_t, std::uint64_t> word_counts(const NumberedWords& words) {
  std::map<std::uint32_t, std::uint64_t> found;
  for (const std::uint32_t word : words) ++found[word];
  return found;
}

std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint64_t> word_pair_counts(const NumberedWords& words) {
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint64_t> found;
  for (std::size_t i = 0; i + 1 < words.size(); ++i) ++found[{words[i], words[i + 1]}];
  return found;
}

std::size_t longest_common(const NumberedWords& a, const NumberedWords& b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (const std::uint32_t word : a) {
    std::size_t diagonal = 0;  // of the row before
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t above = row[j];
      row[j] = word == b[j - 1] ? diagonal + 1 : std::max(above, row[j - 1]);
      diagonal = above;
    }
  }
  return row.back();
}

}  // namespace

Rouge rouge(std::string_view answer, std::string_view prediction) {
  Vocabulary vocabulary;
  const NumberedWords a = vocabulary.words_of(answer), p = vocabulary.words_of(prediction);
  Rouge scores{of_grams(word_counts(a), word_counts(p)), of_grams(word_pair_counts(a), word_pair_counts(p)), 0};
  if (a.empty() || p.empty()) return scores;
  const auto common = double(longest_common(a, p));
  scores.rouge_l = rouge_f(common / double(p.size()), common / double(a.size()));
  return scores;
}

}  // namespace tandem::eval
