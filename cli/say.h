// Notes on standard error.
#pragma once

#include <cstdio>
#include <string>

namespace tandem::cli {

/// A line of its own, in one piece. Where it cannot be written the work goes on all the same: a note is not what it is
/// for, and a full disk that it tells of may be the one that its log lies on.
inline void say(const std::string& line) {
  std::fputs((line + "\n").c_str(), stderr);
}

}  // namespace tandem::cli
