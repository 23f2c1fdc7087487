#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>

#include "engine/common/error.h"
#include "engine/common/json.h"
#include "engine/common/read_file.h"
#include "engine/model/utf8.h"
#include "eval/ruler_tasks/random.h"
#include "eval/ruler_tasks/texts.h"
#include "eval/scoring/python_text.h"

namespace tandem::eval {
namespace {

constexpr std::size_t kLongestWord = 10000;  // bytes; longer ones are no words

/// Quotes and brackets that close after a sentence's last mark, or open before its first letter.
std::size_t bracket_at_end(std::string_view word) {
  for (const std::string_view mark : {"\"", "'", ")", "]", "*", "_", "\xe2\x80\x9d", "\xe2\x80\x99"}) {
    if (word.ends_with(mark)) return mark.size();
  }
  return 0;
}

std::size_t bracket_at_begin(std::string_view word) {
  for (const std::string_view mark : {"\"", "'", "(", "[", "*", "_", "\xe2\x80\x9c", "\xe2\x80\x98"}) {
    if (word.starts_with(mark)) return mark.size();
  }
  return 0;
}

/// A full stop after these ends no sentence.
bool is_abbreviation(std::string_view word) {
  static constexpr std::array<std::string_view, 14> kKnown = {"Mr", "Mrs", "Ms", "Dr", "Prof", "St",  "Jr",
                                                              "Sr", "vs",  "cf", "eg", "ie",   "e.g", "i.e"};
  const bool initial = word.size() == 1 && word[0] >= 'A' && word[0] <= 'Z' && word[0] != 'I';
  return initial || std::find(kKnown.begin(), kKnown.end(), word) != kKnown.end();
}

/// Whether a sentence ends between two words of a text: a mark that ends sentences, and no small letter after it.
bool ends_sentence(std::string_view word, std::string_view next) {
  while (const std::size_t n = bracket_at_end(word)) word.remove_suffix(n);
  while (const std::size_t n = bracket_at_begin(next)) next.remove_prefix(n);
  if (word.empty() || (!next.empty() && next[0] >= 'a' && next[0] <= 'z')) return false;
  if (word.back() == '!' || word.back() == '?') return true;
  if (word.back() != '.') return false;
  while (const std::size_t n = bracket_at_begin(word)) word.remove_prefix(n);
  return !word.empty() && !is_abbreviation(word.substr(0, word.size() - 1));
}

std::string text_of(std::string_view bytes, const std::string& file) {
  if (std::filesystem::path(file).extension() != ".json") {
    if (bytes.starts_with("\xef\xbb\xbf")) bytes.remove_prefix(3);
    if (repair_utf8(bytes) != bytes)
      throw_input_error("The essays '{}' are not UTF-8 text: convert the file, or name it .json if it is JSON.", file);
    return std::string(bytes);
  }
  const nlohmann::json json = json_or_discarded(bytes);
  if (!json.is_object()) throw_input_error("The essays '{}' are not a JSON object with a field 'text'.", file);
  const auto text = json.find("text");
  if (text == json.end()) throw_input_error("The essays '{}' have no field 'text'.", file);
  if (!text->is_string()) throw_input_error("The field 'text' of the essays '{}' must be a string.", file);
  return text->get<std::string>();
}

}  // namespace

std::uint64_t Essays::sentences_before(std::uint64_t n) const {
  const auto rest = static_cast<std::uint32_t>(n % words.size());
  const auto begun = std::lower_bound(sentences.begin(), sentences.end(), rest) - sentences.begin();
  return n / words.size() * sentences.size() + static_cast<std::uint64_t>(begun);
}

std::uint64_t Essays::first_word(std::uint64_t n) const {
  return n / sentences.size() * words.size() + sentences[n % sentences.size()];
}

Essays parse_essays(std::string_view bytes, const std::string& file) {
  const std::string text = text_of(bytes, file);
  const std::vector<std::string_view> words = split_words(text);
  if (words.empty()) throw_input_error("The essays '{}' hold no word.", file);
  if (words.size() > std::numeric_limits<std::uint32_t>::max())
    throw_input_error("The essays '{}' have {} words, more than 4294967295.", file, words.size());
  for (const std::string_view word : words) {
    if (word.size() > kLongestWord)
      throw_input_error(
          "The essays '{}' have a word of {} bytes, \"{}...\": text without spaces cannot be cut to a length.", file,
          word.size(), repair_utf8(word.substr(0, 20)));
  }
  Essays essays;
  essays.words.assign(words.begin(), words.end());
  essays.sentences.push_back(0);
  for (std::size_t i = 1; i < words.size(); ++i) {
    if (ends_sentence(words[i - 1], words[i])) essays.sentences.push_back(static_cast<std::uint32_t>(i));
  }
  essays.hash = fmt::format("{:016x}", fnv1a64(bytes));
  return essays;
}

Essays read_essays(const std::filesystem::path& file) {
  return parse_essays(read_file(file, std::size_t{1} << 30), file.string());
}

}  // namespace tandem::eval
