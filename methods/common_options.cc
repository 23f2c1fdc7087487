#include "methods/common_options.h"

namespace tandem {

void add_union_option(OptionSet& set, std::string& value) {
  set.choice("union", value, {"masked", "attended"},
             "whether a head attends only the blocks it chose, or all that its group chose");
}

void add_digest_option(OptionSet& set, std::string& value) {
  set.choice("digest", value, {"bounds", "mean"},
             "what a block is scored by: its keys' smallest and largest numbers, which no score exceeds (Quest), or "
             "their mean (MoBA), half as many bytes");
}

DigestKind digest_kind_of(const std::string& value) {
  return value == "mean" ? DigestKind::mean : DigestKind::bounds;
}

}  // namespace tandem
