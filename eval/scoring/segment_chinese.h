// Words of Chinese texts, which have no spaces between them: by Python's jieba (a dictionary, and a hidden Markov model
// for what is not in it), because its cuts are what LongBench's scores are defined by.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace tandem::eval {

/// Words of each text, in its order; those of one text put together are the text, so that white space and punctuation
/// are words, too. One Python process for all texts: a second or two, then about a megabyte in a second; give it all
/// there are. Texts are UTF-8. InputError that names the package where there is no Python or no jieba; RunError where
/// the process fails. No texts: no process.
std::vector<std::vector<std::string>> segment_chinese(std::span<const std::string> texts);

/// Throws what segment_chinese() would throw where jieba is missing, so that a run can say it before it begins.
void require_segmenter();

}  // namespace tandem::eval
