// What Python's str and re say about characters, because upstream's scripts are Python: by Unicode, not by ASCII.
// Python 3.11 knows Unicode 14, utf8proc may know a later one: they differ in letters and digits that are newer
// than 14.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tandem::eval {

/// Code points of UTF-8; each maximal part of an invalid sequence becomes U+FFFD, as with errors="replace".
std::u32string code_points(std::string_view text);

std::string to_utf8(std::u32string_view text);

/// str.lower(): one letter may become two (U+0130), and a capital sigma at the end of a word becomes the final one.
std::u32string lower(std::u32string_view text);
std::string lower(std::string_view text);

/// str.replace(), of a `from` that is not empty.
std::string replaced(std::string_view text, std::string_view from, std::string_view to);

/// Bytes of the one white-space character that `text` begins with; 0 if there is none.
std::size_t leading_space(std::string_view text);

/// str.strip(). Bytes that are no valid UTF-8 are no white space.
std::string_view strip(std::string_view text);

/// str.split(): what stands between white space; parts of `text`.
std::vector<std::string_view> split_words(std::string_view text);

/// re's \w: letters, numbers of all kinds, underscore; no combining marks.
bool is_word(char32_t c);

/// str.isspace(): Unicode's spaces count.
bool is_space(char32_t c);

/// re's \d: decimal digits of all scripts, full-width ones too; no superscripts, no fractions.
bool is_digit(char32_t c);

/// In string.punctuation: what is in ASCII neither letter, digit, space nor control character.
bool is_ascii_punctuation(char32_t c);

}  // namespace tandem::eval
