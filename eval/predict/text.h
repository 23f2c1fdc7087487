// Text of sentences and names.
#pragma once

#include <algorithm>
#include <cctype>
#include <string>

namespace tandem::eval {

/// "4K, 8K": the texts of the items that have one.
template <class Items, class Text>
std::string listed(const Items& items, const Text& text, const char* between = ", ") {
  std::string list;
  for (const auto& item : items)
    if (const std::string one = text(item); !one.empty()) list += (list.empty() ? "" : between) + one;
  return list;
}

/// ASCII letters as small ones.
inline std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

}  // namespace tandem::eval
