// Text from a stranger's file or a model, made safe to show: nothing moves the cursor, hides text or turns its
// direction.
#pragma once

#include <string>
#include <string_view>

namespace tandem {

/// One line. Control characters (C0, DEL, C1), line and paragraph separators, marks and overrides of direction, tags
/// and other invisible format characters become "\u001b", as JSON writes them; bytes that are no UTF-8 become U+FFFD.
std::string printable(std::string_view text);

/// The same, but line ends and tabs stay.
std::string printable_lines(std::string_view text);

}  // namespace tandem
