// What is printed must arrive: a full disk behind a pipe is an error, not silence.
#pragma once

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "engine/common/error.h"

namespace tandem::cli {

/// Flushes stdout; RunError where it cannot be written.
inline void check_stdout() {
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
    throw_run_error("The output cannot be written ({}).", std::strerror(errno));
}

}  // namespace tandem::cli
