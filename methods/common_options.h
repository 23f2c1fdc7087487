// Options that several methods have: one name, one meaning, one help.
#pragma once

#include <string>

#include "engine/kernels/digest.h"
#include "methods/options.h"

namespace tandem {

/// union: "masked" or "attended".
void add_union_option(OptionSet& set, std::string& value);

/// digest: "bounds" (Quest) or "mean" (MoBA), of the blocks that a method scores.
void add_digest_option(OptionSet& set, std::string& value);
DigestKind digest_kind_of(const std::string& value);

}  // namespace tandem
