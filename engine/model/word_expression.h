// Expressions of tokenizers are written for Oniguruma (Ruby's syntax); here PCRE2 matches them.
#pragma once

#include <string>

namespace tandem {

/// `expression` as PCRE2 has to be given it (UTF and UCP) to match what Oniguruma matches: \s and \S, Unicode's
/// White_Space property, are written out. Known is what the published expressions consist of. InputError, naming
/// `file`, the expression and the part, for everything else: the two read much of it differently without an error.
std::string pcre2_expression(const std::string& expression, const std::string& file);

}  // namespace tandem
