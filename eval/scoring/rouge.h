// ROUGE of Google's Python package rouge_score 0.1.2 without stemming, which is what L-Eval's scripts call. LongBench's
// ROUGE (rouge_l.h) has other words and other counts; figures of the two cannot be compared.
#pragma once

#include <string_view>

namespace tandem::eval {

/// F-measures in [0, 1]: of words, of pairs of words, and of the longest common subsequence of words.
struct Rouge {
  double rouge1 = 0, rouge2 = 0, rouge_l = 0;
};

/// Of two UTF-8 texts. Words are runs of a to z and 0 to 9 after str.lower(); all else separates them, so that "é" ends
/// a word and "don't" is two. A text without words scores 0. Takes time of the product of both lengths.
Rouge rouge(std::string_view answer, std::string_view prediction);

}  // namespace tandem::eval
