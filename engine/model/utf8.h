// UTF-8 that may be broken, and its composed form.
#pragma once

#include <string>
#include <string_view>

namespace tandem {

/// Every maximal part of an invalid sequence becomes one U+FFFD, as in Python's errors="replace".
std::string repair_utf8(std::string_view text);

/// Bytes before the first that is no valid UTF-8: all of them where it is valid.
std::size_t valid_utf8_bytes(std::string_view text);

/// Bytes at the end of `text` that begin a character which more bytes could complete: 0 to 3.
std::size_t unfinished_utf8(std::string_view text);

/// Unicode normalization form C of valid UTF-8.
std::string compose_utf8(std::string_view text);

}  // namespace tandem
