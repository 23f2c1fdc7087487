// What people put around the items of a list.
#pragma once

#include <string_view>

namespace tandem {

/// Without these characters at both ends.
inline std::string_view trimmed(std::string_view text, std::string_view spaces = " \t") {
  const auto first = text.find_first_not_of(spaces);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(spaces) - first + 1);
}

}  // namespace tandem
