// tandem validate --here.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "eval/report/output_folder.h"

namespace tandem::cli {

struct ValidateHereArguments {
  std::string contexts = "16K,32K", hardware, out, prefix_cache;
  std::vector<std::string> methods;  // each a list; none: eval::here_methods()
  std::uint32_t rounds = 5;
  bool operations = false, force = false, quiet = false;
};

/// The folder of --out, free or with a validation to replace; the first of its files says whether there is one.
/// InputError else. Not held where `out` is empty.
eval::OutputFolder open_validation(const std::string& out, bool force, std::initializer_list<const char*> names);

void validate_here(const ValidateHereArguments& arguments);

}  // namespace tandem::cli
