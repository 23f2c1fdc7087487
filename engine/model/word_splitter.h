// Cuts text into the words that byte pair encoding works on, by the regular expressions of published tokenizers.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

/// The published expressions.
extern const char* const kGpt2Words;
extern const char* const kLlama3Words;
extern const char* const kQwen2Words;

class WordSplitter {
 public:
  /// One expression after the other cuts what the one before left. White space (\s, \S) means Unicode's White_Space
  /// property, as in the references, also where PCRE2 has its own idea (U+180E). InputError naming `file` for an
  /// expression that does not compile, or that PCRE2 may read differently from the references' library.
  WordSplitter(const std::vector<std::string>& expressions, const std::string& file);
  ~WordSplitter();

  /// Matches and what lies between them, in order, as long as `word` returns true; together they are the text, which is
  /// valid UTF-8. False where `word` returned that. InputError where an expression needs more steps than any real text
  /// makes it.
  bool split(std::string_view text, const std::function<bool(std::string_view word)>& word) const;

 private:
  struct Expression;
  bool split(std::string_view text, std::size_t expression, const std::function<bool(std::string_view)>& word) const;

  std::vector<std::unique_ptr<Expression>> expressions_;
  std::string file_;
};

}  // namespace tandem
