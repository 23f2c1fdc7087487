// tandem validate --here.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/output.h"
#include "eval/report/output_folder.h"

namespace tandem::cli {

struct ValidateHereArguments {
  std::string contexts = "16K,32K", hardware, out, prefix_cache;
  std::vector<std::string> methods;  // each a list; none: eval::here_methods()
  std::uint32_t rounds = 5;
  bool operations = false, force = false, quiet = false;
};

/// The folder of --out, free or with a validation to replace; InputError else. Not held where `out` is empty.
eval::OutputFolder open_validation(const std::string& out, bool force, const ReportFiles& files);

void validate_here(const ValidateHereArguments& arguments);

}  // namespace tandem::cli
