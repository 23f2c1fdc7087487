// ROUGE-L as the Python package rouge 1.0.1 (pltrdy) gives it, which is what LongBench's rouge_score calls. Google's
// rouge_score has other words and other counts; figures of the two cannot be compared.
#pragma once

#include <string_view>

namespace tandem::eval {

/// F of the summary-level ROUGE-L of two UTF-8 texts, in [0, 1). Sentences end at every ".", also in "3.5"; words stand
/// between white space, case and punctuation count. Each sentence of the answer is aligned with each of the prediction
/// by a longest common subsequence, and the different words in any of these are counted once: F is of their number
/// over the number of different words of the prediction, and of the answer. Quirks, kept:
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
