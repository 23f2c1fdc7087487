// Notes on standard error.
#pragma once

#include <cstdio>
#include <string>

#include "engine/common/printable.h"

namespace tandem::cli {

/// A line of its own, in one piece. Where it cannot be written the work goes on all the same: a note is not what it is
/// for, and a full disk that it tells of may be the one that its log lies on. Names in it may be anybody's: only its
/// own line ends reach the terminal as such.
inline void say(const std::string& line) {
  std::fputs((printable_lines(line) + "\n").c_str(), stderr);
}

}  // namespace tandem::cli
