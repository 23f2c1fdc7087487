// ROUGE as two Python packages give it. They have different words and different counts; their figures cannot be
// compared.
#pragma once

#include <string_view>

namespace tandem::eval {

/// F-measures in [0, 1]: of words, of pairs of words, and of the longest common subsequence of words.
struct Rouge {
  double rouge1 = 0, rouge2 = 0, rouge_l = 0;
};

/// ROUGE of two UTF-8 texts as in Google's rouge_score 0.1.2 without stemming, which L-Eval's scripts call. Words are
/// runs of a to z and 0 to 9 after str.lower(); all else separates them, so that "é" ends a word and "don't" is two. A
/// text without words scores 0. Takes time of the product of both lengths.
Rouge rouge(std::string_view answer, std::string_view prediction);

/// F of the summary-level ROUGE-L of two UTF-8 texts, in [0, 1), as rouge 1.0.1 (pltrdy) has it, which LongBench's
/// rouge_score calls. Sentences end at every ".", also in "3.5"; words stand between white space, case and punctuation
/// count. Each sentence of the answer is aligned with each of the prediction by a longest common subsequence, and the
/// different words in any of these are counted once: F is of their number over the number of different words of the
/// prediction, and of the answer. Quirks, kept:
///  - 1e-8 in F's denominator: equal texts score 0.999999995;
///  - repeated words count once: "a a a a" and "a" are equal;
///  - a sentence of white space alone ("a b. \n") has one word, the empty one;
///  - which of several longest subsequences is taken decides which words are counted: the one that upstream's walk
///    back through the table takes;
///  - a text without sentences ("", "..") scores 0 (the package throws, LongBench turns that into 0).
/// One quirk is not kept: where a pair of sentences is long (about 1,000 words together), the package's recursion
/// reaches Python's limit and LongBench scores 0. It depends on the depth of the caller's stack and was mended after
/// 1.0.1; the score given here is the one that the package gives under a higher limit.
double rouge_l(std::string_view prediction, std::string_view answer);

}  // namespace tandem::eval
