// What the shell sees, and the exception that is no error.
#pragma once

#include <stdexcept>

namespace tandem::cli {

enum ExitCode : int {
  kDone = 0,
  kGateFailed = 1,  // GateFailed: the run is fine, its result is not good enough
  kBadInput = 2,    // InputError, and what CLI11 says about the command line
  kRunFailed = 3,   // RunError, Interrupted and our own mistakes
};

/// Thrown by a subcommand that judges results and found them wanting.
class GateFailed : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace tandem::cli
