// LongBench's scores of answers that are one of a few: a class, a paragraph, a number. classification_score,
// retrieval_score, retrieval_zh_score and count_score of its metrics.py; all in [0, 1], of UTF-8 texts.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace tandem::eval {

/// 1 over the number of classes that stand in the prediction, if the answer is one of them, else 0. Classes that are
/// part of the answer and not the answer itself ("Sport" of "Sport event") are taken away first. Quirk, kept: upstream
/// takes them away from the list that it walks over, which jumps over the class that follows each, so that of two
/// such neighbours one stays and lowers the score.
double classification(std::string_view prediction, std::string_view answer, std::span<const std::string> classes);

/// Share of the prediction's numbers that are `answer`, as texts ("3" is not "03", nor the full-width 3); 0 where it
/// has none. A number is a run of decimal digits of any script (is_digit()).
double count_score(std::string_view prediction, std::string_view answer);

/// count_score() of the number of the answer's first "Paragraph N". InputError where it has none.
double retrieval(std::string_view prediction, std::string_view answer);

/// The same with "段落N".
double retrieval_zh(std::string_view prediction, std::string_view answer);

}  // namespace tandem::eval
