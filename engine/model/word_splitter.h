// Cuts text into the words that byte pair encoding works on, by the regular expressions of published tokenizers.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

struct pcre2_real_match_data_8;

namespace tandem {

/// The published expressions.
extern const char* const kGpt2Words;
extern const char* const kLlama3Words;
extern const char* const kQwen2Words;

/// `expression`, written for Oniguruma (Ruby's syntax), as PCRE2 has to be given it (UTF and UCP) to match the same: \s
/// and \S, Unicode's White_Space property, are written out. Known is what the published expressions consist of.
/// InputError, naming `file`, the expression and the part, for everything else: the two read much of it differently
/// without an error.
std::string pcre2_expression(const std::string& expression, const std::string& file);

class WordSplitter {
 public:
  /// One expression after the other cuts what the one before left. White space (\s, \S) means Unicode's White_Space
  /// property, as in the references, also where PCRE2 has its own idea (U+180E). InputError naming `file` for an
  /// expression that does not compile, or that PCRE2 may read differently from the references' library.
  WordSplitter(const std::vector<std::string>& expressions, const std::string& file);
  ~WordSplitter();

  /// Matches and what lies between them, in order, as long as `word` returns true; together they are the text, which is
  /// valid UTF-8. False where `word` returned that. InputError where the expressions need more steps for the text
  /// than a budget in proportion to its bytes.
  bool split(std::string_view text, const std::function<bool(std::string_view word)>& word) const;

 private:
  struct Expression;
  struct Budget;
  bool split(std::string_view text, std::size_t expression, Budget& budget,
             const std::function<bool(std::string_view)>& word) const;
  bool find(const Expression& expression, std::string_view text, std::size_t from, Budget& budget,
            pcre2_real_match_data_8* match) const;

  std::vector<std::unique_ptr<Expression>> expressions_;
  std::string file_;
};

}  // namespace tandem
