// Regular expressions of published extractors, which are Python's: PCRE2 reads those used here the same way.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::eval {

/// A compiled expression; Unicode classes, and a dot is no line end. Texts are UTF-8. A match that would take too many
/// steps is none.
class Pattern {
 public:
  explicit Pattern(std::string_view expression);

  bool finds(std::string_view text) const { return !first(text, 0).empty(); }

  /// The parts of the first match at or behind `from`: the whole, then its groups; empty where there is none. A group
  /// that took no part has a null pointer.
  std::vector<std::string_view> first(std::string_view text, std::size_t from) const;

  /// re.sub(), every match becoming what `by` makes of its parts.
  std::string replaced(std::string_view text,
                       const std::function<std::string(const std::vector<std::string_view>&)>& by) const;

  /// re.split().
  std::vector<std::string> split(std::string_view text) const;

 private:
  std::shared_ptr<void> code_;
};

}  // namespace tandem::eval
