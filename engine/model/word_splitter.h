// Cuts text into the words that byte pair encoding works on, by the regular expressions of published tokenizers.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

struct pcre2_real_code_8;
struct pcre2_real_match_data_8;

namespace tandem {

/// The published expressions.
extern const char* const kGpt2Words;
extern const char* const kLlama3Words;
extern const char* const kQwen2Words;

/// `expression`, written for Oniguruma (Ruby's syntax), as PCRE2 has to be given it (UTF and UCP) to match the same: \s
/// and \S, Unicode's White_Space property, are written out. InputError, naming `file`, the expression and the part, for
/// all that published expressions do not use: the two libraries read much of it differently without an error.
std::string pcre2_expression(const std::string& expression, const std::string& file);

class WordSplitter {
 public:
  /// One expression after the other cuts what the one before left. \s and \S mean Unicode's White_Space, as in the
  /// references. InputError naming `file` for an expression that does not compile, or that PCRE2 may read differently.
  WordSplitter(const std::vector<std::string>& expressions, const std::string& file);

  /// Matches and what lies between them, in order, as long as `word` returns true (false where it did not); together
  /// they are the text, valid UTF-8. InputError where a text needs more steps than a budget in proportion to its bytes.
  bool split(std::string_view text, const std::function<bool(std::string_view word)>& word) const;

 private:
  using Expression = std::shared_ptr<pcre2_real_code_8>;
  struct Budget;
  bool split(std::string_view text, std::size_t expression, Budget& budget,
             const std::function<bool(std::string_view)>& word) const;
  bool find(const Expression& expression, std::string_view text, std::size_t from, Budget& budget,
            pcre2_real_match_data_8* match) const;

  std::vector<Expression> expressions_;
  std::string file_;
};

}  // namespace tandem
