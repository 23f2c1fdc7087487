// White space as Python sees it (str.isspace()), because upstream's scripts are Python: Unicode spaces count. Bytes
// that are no valid UTF-8 are no space.
#pragma once

#include <string_view>
#include <vector>

namespace tandem::eval {

/// Bytes of the one white-space character that `text` begins with; 0 if there is none.
std::size_t leading_space(std::string_view text);

/// Without white space at both ends.
std::string_view strip(std::string_view text);

/// What stands between white space; parts of `text`.
std::vector<std::string_view> split_words(std::string_view text);

}  // namespace tandem::eval
