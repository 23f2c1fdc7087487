#include "eval/scoring/rouge.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "eval/scoring/python_text.h"
#include "eval/scoring/token_f1.h"

namespace tandem::eval {
namespace {

using Words = std::vector<std::string>;

Words ascii_words(std::string_view text) {
  std::string spaced = lower(text);
  const auto separates = [](char c) { return (c < 'a' || c > 'z') && (c < '0' || c > '9'); };
  std::replace_if(spaced.begin(), spaced.end(), separates, ' ');
  const auto words = split_words(spaced);
  return {words.begin(), words.end()};
}

Words pairs_of(const Words& words) {
  Words pairs;
  for (std::size_t i = 1; i < words.size(); ++i) pairs.push_back(words[i - 1] + " " + words[i]);
  return pairs;
}

std::size_t longest_common(const Words& a, const Words& b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (const std::string& word : a) {
    std::size_t diagonal = 0;  // of the row before
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t above = row[j];
      row[j] = word == b[j - 1] ? diagonal + 1 : std::max(above, row[j - 1]);
      diagonal = above;
    }
  }
  return row.back();
}

using Sentence = std::vector<std::uint32_t>;  // numbers of words

/// Equal words have equal numbers, from 0.
using WordNumbers = std::unordered_map<std::string_view, std::uint32_t>;

std::vector<Sentence> sentences_of(std::string_view text, WordNumbers& numbers) {
  std::vector<Sentence> sentences;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('.', begin), text.size());
    if (end > begin) {
      auto words = split_words(text.substr(begin, end - begin));
      if (words.empty()) words.emplace_back();
      Sentence& sentence = sentences.emplace_back();
      for (const std::string_view word : words)
        sentence.push_back(numbers.try_emplace(word, static_cast<std::uint32_t>(numbers.size())).first->second);
    }
    begin = end + 1;
  }
  return sentences;
}

/// Marks the words of one longest common subsequence.
void mark_common(const Sentence& answer, const Sentence& prediction, std::vector<bool>& marked) {
  enum Move : std::uint8_t { both, answer_back, prediction_back };
  const std::size_t width = prediction.size();
  std::vector<Move> moves(answer.size() * width);
  std::vector<std::uint32_t> above(width + 1, 0), row(width + 1, 0);  // lengths of subsequences of beginnings
  for (std::size_t i = 0; i < answer.size(); ++i) {
    for (std::size_t j = 0; j < width; ++j) {
      Move& move = moves[i * width + j];
      if (answer[i] == prediction[j]) {
        move = both;
        row[j + 1] = above[j] + 1;
      } else {
        move = above[j + 1] > row[j] ? answer_back : prediction_back;
        row[j + 1] = std::max(above[j + 1], row[j]);
      }
    }
    std::swap(above, row);
  }
  for (std::size_t i = answer.size(), j = width; i > 0 && j > 0;) {
    const Move move = moves[(i - 1) * width + j - 1];
    if (move == both) marked[answer[i - 1]] = true;
    if (move != prediction_back) --i;
    if (move != answer_back) --j;
  }
}

std::size_t different_words(const std::vector<Sentence>& sentences, std::size_t all) {
  std::vector<bool> seen(all, false);
  for (const Sentence& sentence : sentences)
    for (const std::uint32_t word : sentence) seen[word] = true;
  return static_cast<std::size_t>(std::count(seen.begin(), seen.end(), true));
}

}  // namespace

Rouge rouge(std::string_view answer, std::string_view prediction) {
  const Words a = ascii_words(answer), p = ascii_words(prediction);
  return {f1_of_words(p, a), f1_of_words(pairs_of(p), pairs_of(a)),
          f1_of_counts(longest_common(a, p), p.size(), a.size())};
}

double rouge_l(std::string_view prediction, std::string_view answer) {
  WordNumbers numbers;
  const auto predicted = sentences_of(prediction, numbers), expected = sentences_of(answer, numbers);
  if (predicted.empty() || expected.empty()) return 0;
  std::vector<bool> marked(numbers.size(), false);
  for (const Sentence& reference : expected)
    for (const Sentence& candidate : predicted) mark_common(reference, candidate, marked);
  const auto common = static_cast<double>(std::count(marked.begin(), marked.end(), true));
  const double recall = common / static_cast<double>(different_words(expected, numbers.size()));
  const double precision = common / static_cast<double>(different_words(predicted, numbers.size()));
  return 2.0 * (precision * recall / (precision + recall + 1e-8));
}

}  // namespace tandem::eval
