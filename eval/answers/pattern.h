// Regular expressions of published extractors, which are Python's: PCRE2 reads those used here the same way.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::eval {

/// A compiled expression; a dot is no line end. A match that would take too many steps is none.
class Pattern {
 public:
  enum class Of : unsigned char { utf8, bytes };  // with Unicode's classes and cases, or ASCII's
  /// A match: the whole, then its groups. A group that took no part has a null pointer. Empty: no match.
  using Parts = std::vector<std::string_view>;

  explicit Pattern(std::string_view expression, Of texts = Of::utf8);

  bool finds(std::string_view text) const { return !first(text).empty(); }

  /// The first match at or behind `from`.
  Parts first(std::string_view text, std::size_t from = 0) const;

  /// re.finditer() from `from` on.
  std::vector<Parts> all(std::string_view text, std::size_t from = 0) const;

  /// re.sub(), every match becoming what `by` makes of it, or this text with groups in place of \1 and \2.
  std::string replaced(std::string_view text, const std::function<std::string(const Parts&)>& by) const;
  std::string replaced(std::string_view text, std::string_view by) const;

 private:
  std::shared_ptr<void> code_;
};

/// An expression of several: each row's is a group.
template <class Table, class Member>
std::string alternatives(const Table& table, Member expression) {
  std::string all;
  for (const auto& row : table) all += (all.empty() ? "(" : "|(") + std::string(row.*expression) + ")";
  return all;
}

/// The number of the first group that took part.
std::size_t group_of(const Pattern::Parts& match);

}  // namespace tandem::eval
