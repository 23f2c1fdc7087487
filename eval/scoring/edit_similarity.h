// Similarity of a line of code to the one that was asked for: code_sim_score of LongBench's metrics.py, as it is where
// python-Levenshtein is not installed (LongBench does not ask for it): fuzzywuzzy 0.18.0 then compares with difflib,
// the method of Ratcliff and Obershelp. With python-Levenshtein the figures are others ("tide", "diet": 50 and not 25).
#pragma once

#include <string_view>

namespace tandem::eval {

/// fuzz.ratio(): 100 for equal texts, 0 where one of two different ones is empty, else 100 times twice the characters
/// in matching blocks over the characters of both, rounded to the nearest integer (halves to even). Of Unicode
/// characters. Quirks, kept: not symmetric; where the second text has 200 characters or more, its popular ones (more
/// than 1 + n/100 times) begin no match, though a match may grow over them.
int fuzzy_ratio(std::string_view first, std::string_view second);

/// In [0, 1], by hundredths. Of the prediction the first line counts that has no "`", "#" or "//" in it, newlines at
/// the beginning left out; it may be an empty line, or nothing where all lines have one. The answer counts as it is.
double code_similarity(std::string_view prediction, std::string_view answer);

}  // namespace tandem::eval
