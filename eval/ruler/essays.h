// The haystack of upstream's needle tasks: one long text (upstream: essays by Paul Graham), as words, with the places
// between its sentences where needles can stand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::eval {

struct Essays {
  std::vector<std::string> words;        // what stands between white space, at least one
  std::vector<std::uint32_t> sentences;  // first word of each sentence, ascending; the first is 0
  std::string hash;                      // of the file's bytes, 16 hexadecimal digits

  // Of the text said over and over, without end:
  const std::string& word(std::uint64_t n) const { return words[n % words.size()]; }
  /// Sentences that begin before word `n`. Every repetition begins one.
  std::uint64_t sentences_before(std::uint64_t n) const;
  /// The word that sentence `n` begins with.
  std::uint64_t first_word(std::uint64_t n) const;
};

/// JSON ({"text": "..."}, as upstream's download script writes it) where `file` ends in .json, else plain UTF-8 text.
/// InputError, naming `file`, for anything else, for a text without words and for one without spaces.
Essays parse_essays(std::string_view bytes, const std::string& file);
Essays read_essays(const std::filesystem::path& file);

}  // namespace tandem::eval
