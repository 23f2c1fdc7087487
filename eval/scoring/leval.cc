#include "eval/scoring/leval.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <fmt/format.h>
#include <optional>
#include <set>
#include <vector>

#include "engine/common/error.h"
#include "eval/scoring/normalise.h"
#include "eval/scoring/python_text.h"

namespace tandem::eval {
namespace {

constexpr auto kLEvalDatasets = std::to_array<LEvalDataset>({{"coursera", true},
                                                             {"quality", true},
                                                             {"topic_retrieval_longchat", true},
                                                             {"tpo", true},
                                                             {"gsm100", true},
                                                             {"codeU", true},
                                                             {"financial_qa", false},
                                                             {"gov_report_summ", false},
                                                             {"legal_contract_qa", false},
                                                             {"meeting_summ", false},
                                                             {"multidoc_qa", false},
                                                             {"narrative_qa", false},
                                                             {"natural_question", false},
                                                             {"news_summ", false},
                                                             {"paper_assistant", false},
                                                             {"patent_summ", false},
                                                             {"review_summ", false},
                                                             {"scientific_qa", false},
                                                             {"tv_show_summ", false}});

bool is_choice(char c) {
  return c >= 'A' && c <= 'D';
}

std::string choices_in(std::string_view text) {
  std::string found;
  std::copy_if(text.begin(), text.end(), std::back_inserter(found), is_choice);
  return found;
}

/// Each letter once, in order.
std::string sorted_once(const std::string& letters) {
  const std::set<char> once(letters.begin(), letters.end());
  return {once.begin(), once.end()};
}

/// The first run of A to D.
std::string first_run(std::string_view text) {
  const auto begin = std::find_if(text.begin(), text.end(), is_choice);
  return {begin, std::find_if_not(begin, text.end(), is_choice)};
}

std::string chosen(std::string_view response, bool several) {
  if (strip(response).empty()) return "None";
  if (std::string_view("ABCD").find(response) != std::string_view::npos) return std::string(response);
  if (!several) {
    const auto first = std::find_if(response.begin(), response.end(), is_choice);
    if (first != response.end()) return {*first};
  }
  const auto run =
      static_cast<std::size_t>(std::find_if_not(response.begin(), response.end(), is_choice) - response.begin());
  std::string letters(response.substr(0, run));
  if (letters.size() > 1) return sorted_once(letters);
  response.remove_prefix(run);
  response = response.substr(0, response.find("Question"));
  for (std::size_t i = 0; i + 1 < response.size(); ++i) {
    const std::string_view behind = response.substr(i + 1);
    if (is_choice(response[i]) && (behind[0] == '.' || behind[0] == ')' || leading_space(behind) > 0))
      letters += response[i];
  }
  letters = sorted_once(letters);
  if (letters.empty()) letters = first_run(response);
  return letters.empty() ? "A" : letters;  // upstream's guess
}

std::string right_choice(std::string_view answer) {
  const std::vector<std::string_view> words = split_words(answer);
  const std::string letters = words.empty() ? "" : choices_in(words.front());
  return letters.empty() ? "A" : letters;
}

std::string number_in(std::string_view response) {
  const std::u32string all = code_points(response);
  std::u32string_view text = all, found;
  constexpr std::u32string_view kMark = U"The answer is ";
  for (std::size_t at = 0; found.empty() && (at = text.find(kMark, at)) != text.npos; ++at) {  // a word follows at once
    const std::u32string_view behind = text.substr(at + kMark.size());
    found = behind.substr(0, static_cast<std::size_t>(std::ranges::find_if(behind, is_space) - behind.begin()));
  }
  if (found.empty()) {
    text = text.substr(0, text.find(U"\n\n"));
    const auto digit = std::find_if(text.rbegin(), text.rend(), is_digit).base();
    const std::u32string_view before(text.begin(), digit);
    if (!before.empty())
      found = text.substr(before.rfind(U' ') + 1, text.find(U' ', before.size()) - before.rfind(U' ') - 1);
  }
  std::u32string digits;
  for (const char32_t c : found) {
    if (c == U'.') break;
    if (is_digit(c)) digits += c;
  }
  return to_utf8(digits);
}

/// A space in place of each run of white space.
std::string single_spaces(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t space = leading_space(text);
    if (space == 0 || !out.ends_with(' ')) out += space > 0 ? ' ' : text[0];
    text.remove_prefix(std::max<std::size_t>(1, space));
  }
  return out;
}

std::string plain_code(std::string_view text) {
  std::string code = single_spaces(text);
  for (const char* dropped : {",", "'", "\\", ".0"}) code = replaced(code, dropped, "");
  code = replaced(code, "] [", "][");
  code = replaced(code, "[ [", "[[");
  return replaced(code, "] ]", "]]");
}

std::string printed_code(std::string_view response, std::string_view answer) {
  const std::size_t words = split_words(answer).size() + 3;
  std::string code = plain_code(response);
  for (const char* dropped : {"will be", "of the code", "is", "would be", "the value of", "the result of", "printed"})
    code = replaced(code, dropped, "");
  constexpr std::string_view kMark = "the final output";
  const std::size_t mark = code.rfind(kMark);
  if (mark != std::string::npos) code = code.substr(mark + kMark.size());
  // Between runs of spaces, as re.split: nothing stands before one at the beginning, or behind one at the end.
  const std::string spaced = single_spaces(code);
  std::vector<std::string_view> parts;
  for (std::size_t at = 0; at <= spaced.size();) {
    const std::size_t end = std::min(spaced.find(' ', at), spaced.size());
    parts.push_back(std::string_view(spaced).substr(at, end - at));
    at = end + 1;
  }
  const std::size_t kept = std::min(words, parts.size());
  const std::size_t first = mark != std::string::npos ? 0 : parts.size() - kept;
  return fmt::format("{}", fmt::join(std::span(parts).subspan(first, kept), " "));
}

/// Where decimal digits begin, ten in a row, in Unicode 14.
constexpr char32_t kZeros[] = {0x0030,  0x0660,  0x06f0,  0x07c0,  0x0966,  0x09e6,  0x0a66,  0x0ae6,  0x0b66,  0x0be6,
                               0x0c66,  0x0ce6,  0x0d66,  0x0de6,  0x0e50,  0x0ed0,  0x0f20,  0x1040,  0x1090,  0x17e0,
                               0x1810,  0x1946,  0x19d0,  0x1a80,  0x1a90,  0x1b50,  0x1bb0,  0x1c40,  0x1c50,  0xa620,
                               0xa8d0,  0xa900,  0xa9d0,  0xa9f0,  0xaa50,  0xabf0,  0xff10,  0x104a0, 0x10d30, 0x11066,
                               0x110f0, 0x11136, 0x111d0, 0x112f0, 0x11450, 0x114d0, 0x11650, 0x116c0, 0x11730, 0x118e0,
                               0x11950, 0x11c50, 0x11d50, 0x11da0, 0x16a60, 0x16ac0, 0x16b50, 0x1d7ce, 0x1d7d8, 0x1d7e2,
                               0x1d7ec, 0x1d7f6, 0x1e140, 0x1e2f0, 0x1e950, 0x1fbf0};

/// Decimal digits of other scripts as ASCII's, as float() takes them.
std::string with_ascii_digits(std::string_view text) {
  std::u32string out = code_points(text);
  for (char32_t& c : out) {
    const char32_t* above = std::upper_bound(std::begin(kZeros), std::end(kZeros), c);
    if (above != std::begin(kZeros) && c - above[-1] < 10) c = U'0' + (c - above[-1]);
  }
  return to_utf8(out);
}

/// A number as Python's float() reads it: nothing where that raises an error.
std::optional<double> python_float(std::string_view text) {
  const std::string stripped = with_ascii_digits(strip(text));
  std::string plain;
  for (std::size_t i = 0; i < stripped.size(); ++i) {
    const char c = stripped[i];
    const auto digit_at = [&](std::size_t at) {
      return at < stripped.size() && stripped[at] >= '0' && stripped[at] <= '9';
    };
    if (c == '_') {  // between two digits only
      if (i == 0 || !digit_at(i - 1) || !digit_at(i + 1)) return std::nullopt;
      continue;
    }
    if (c == 'x' || c == 'X' || c == 'p' || c == 'P' || c == '(') return std::nullopt;  // strtod's own
    plain += c;
  }
  if (plain.empty() || leading_space(plain) > 0) return std::nullopt;
  char* end = nullptr;
  const double value = std::strtod(plain.c_str(), &end);
  if (end != plain.c_str() + plain.size()) return std::nullopt;
  return value;
}

std::string without_spaces(std::string_view text) {
  return replaced(lower(text), " ", "");
}

double exact_match(const std::string& prediction, const std::string& answer) {
  const std::string right = normalise_cased_answer(answer);
  if (std::all_of(right.begin(), right.end(), is_choice)) {
    const std::string said = normalise_cased_answer(prediction);
    if (said == right) return 1;
    const bool part = std::all_of(said.begin(), said.end(), [&](char c) { return right.find(c) != std::string::npos; });
    return part ? 0.25 : 0;
  }
  const std::optional<double> said = python_float(prediction), value = python_float(answer);
  if (said && value) return *said == *value ? 1 : 0;
  return without_spaces(prediction).find(without_spaces(answer)) != std::string::npos ? 1 : 0;
}

}  // namespace

std::span<const LEvalDataset> leval_datasets() {
  return kLEvalDatasets;
}

const LEvalDataset& leval_dataset(std::string_view name) {
  std::vector<std::string> names;
  for (const LEvalDataset& dataset : kLEvalDatasets) {
    if (dataset.name == name) return dataset;
    names.emplace_back(dataset.name);
  }
  if (name == "sci_fi")
    throw_input_error(
        "L-Eval's sci_fi is not here: each of its answers is one to a question with the document and one to the same "
        "question without it, of which there is one prompt for two answers.");
  throw_input_error("L-Eval has no data set '{}'.{} There are {}.", name, did_you_mean(name, names), join_names(names));
}

LEvalKind leval_kind(const LEvalDataset& dataset, std::string_view evaluation) {
  if (!dataset.closed) return evaluation == "f1" ? LEvalKind::f1 : LEvalKind::rouge;
  if (dataset.name == "coursera") return LEvalKind::choices;
  if (dataset.name == "gsm100") return LEvalKind::number;
  if (dataset.name == "codeU") return LEvalKind::code;
  return dataset.name == "topic_retrieval_longchat" ? LEvalKind::contains : LEvalKind::choice;
}

double leval_exam(LEvalKind kind, std::string_view prediction, std::string_view answer) {
  switch (kind) {
    case LEvalKind::choice:
    case LEvalKind::choices:
      return exact_match(chosen(prediction, kind == LEvalKind::choices), right_choice(answer));
    case LEvalKind::number:
      return exact_match(number_in(prediction), number_in(answer));
    case LEvalKind::contains:
      return exact_match(std::string(prediction), std::string(answer));
    case LEvalKind::code:
      return exact_match(printed_code(prediction, answer), plain_code(answer));
    case LEvalKind::f1:
    case LEvalKind::rouge:
      break;
  }
  TANDEM_CHECK(false, "an open task's score is no exam's");
}

}  // namespace tandem::eval
