// L-Eval's scores of one answer, as upstream's Evaluation/auto_eval.py gives them (OpenLMLab/LEval at cd34b05, Python
// 3.11), quirks included. All texts are UTF-8; bytes that are none count as U+FFFD.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tandem::eval {

enum class LEvalKind : std::uint8_t {
  choice,    // one letter of A to D: quality, tpo
  choices,   // one or several letters: coursera
  number,    // the number behind "The answer is": gsm100
  contains,  // the answer's text, spaces and case aside: topic_retrieval_longchat
  code,      // what a program prints: codeU
  f1,        // the answer's words: qa_f1() of token_f1.h
  rouge,     // rouge.h
};

struct LEvalDataset {
  std::string_view name;  // of its file, without ".jsonl"
  bool closed;            // "Closed-ended-tasks", else "Open-ended-tasks"
  /// Whether what stands before every question are worked examples, which are no document that it is about.
  bool has_examples() const { return name == "gsm100"; }
};

/// All of upstream's but sci_fi, each answer of which is two, to two questions of which the second is made from the
/// first and has no document. In upstream's order.
std::span<const LEvalDataset> leval_datasets();
/// InputError with the nearest name, and for sci_fi with the reason.
const LEvalDataset& leval_dataset(std::string_view name);

/// How a record of a data set is scored whose field "evaluation" says this ("exam", "f1", "rouge").
LEvalKind leval_kind(const LEvalDataset& dataset, std::string_view evaluation);

/// Of a closed task: 0, 1, or 0.25 for letters that are a part of the right ones, none included ("exact match").
/// Quirks, kept:
///  - choice and choices: a run of ABCD, as "BC", stands for itself, and no answer for none of them. Else of choice the
///    first letter of A to D, wherever it stands ("Answer" is A); a longer answer of choices is looked through for
///    capital letters before a space, a full stop or a bracket, then for any run of A to D. One without any counts as
///    A, a guess;
///  - number: digits of the number until a full stop, other characters in it left out ("$1,234.50" is 1234); without
///    "The answer is" that of the last word with a digit before the first empty line;
///  - contains: the answer anywhere in the prediction; where both are numbers, as Python reads them, they are compared
///    as such;
///  - code: after commas, apostrophes, backslashes and words like "is" are dropped everywhere, in the last words of the
///    answer, three more than the right one has.
/// Digits are is_digit()'s, where Python's isdigit() has superscripts, too.
double leval_exam(LEvalKind kind, std::string_view prediction, std::string_view answer);

}  // namespace tandem::eval
