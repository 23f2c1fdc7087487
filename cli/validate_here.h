// tandem validate --here.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tandem::cli {

struct ValidateHereArguments {
  std::string contexts = "16K,32K", hardware, out, prefix_cache;
  std::vector<std::string> methods;  // each a list; none: eval::here_methods()
  std::uint32_t rounds = 5;
  bool operations = false, force = false, quiet = false;
};

void validate_here(const ValidateHereArguments& arguments);

}  // namespace tandem::cli
