// Answers made alike before their words are compared: normalize_answer of SQuAD and LongBench (English), and
// LongBench's normalize_zh_answer.
#pragma once

#include <string>
#include <string_view>

namespace tandem::eval {

/// In this order: lower case, ASCII punctuation dropped, the words "a", "an" and "the" dropped, one space between what
/// is left and none at the ends. By Unicode (python_text.h), so that letters outside ASCII are letters:
/// nothing is dropped from "thé". Dropped punctuation leaves no space: "well-known" is one word.
std::string normalise_answer(std::string_view text);

/// The same without lower case, as L-Eval's exact match has it: "A" is an answer there, and no article.
std::string normalise_cased_answer(std::string_view text);

/// Lower case; ASCII punctuation, upstream's list of Chinese punctuation and white space dropped. The list has
/// gaps that scores depend on: 》 is in it, 《, 〈 and 〉 are not.
std::string normalise_chinese_answer(std::string_view text);

}  // namespace tandem::eval
