// F1 of the words that a prediction and an answer share: qa_f1_score and qa_f1_zh_score of LongBench's metrics.py.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace tandem::eval {

/// F1 where both texts share `same` words; 0 where they share none.
double f1_of_counts(std::size_t same, std::size_t prediction, std::size_t answer);

/// Of two lists of words, each word counted as often as both have it, in [0, 1]; 0 where they share none.
double f1_of_words(std::span<const std::string> prediction, std::span<const std::string> answer);

/// Of the words of two texts after normalise_answer().
double qa_f1(std::string_view prediction, std::string_view answer);

/// Of words that segment_chinese() found, each after normalise_chinese_answer(); words of which nothing is left do not
/// count. Quirk: a word is normalised by itself, so that an article or a space is no word, but nothing grows together.
double qa_f1_zh(std::span<const std::string> prediction, std::span<const std::string> answer);

}  // namespace tandem::eval
