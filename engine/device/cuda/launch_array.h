// Small arrays that go with a launch.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "engine/common/error.h"
#include "engine/common/on_both.h"

namespace tandem {

/// What a kernel is told of each row or list: among its parameters where that fits, so that nothing is copied before
/// the launch, and in device memory where not. A copy into a stream between two kernels costs as much as either of
/// them where these are short, as in a decode step. Kernels take it as a __grid_constant__ parameter: the compiler
/// would put one that is indexed into every thread's own memory otherwise. A kernel whose registers are scarce takes a
/// plain pointer: where an element lies is known only when it runs, so that its members are kept in registers instead
/// of being read again (score_blocks and best_units_of_all spill for it).
template <class T>
class LaunchArray {
 public:
  static constexpr std::size_t kHere = 1024 / sizeof(T);

  LaunchArray() = default;
  /// In device memory, not owned.
  LaunchArray(const T* device) : far_(device) {}  // NOLINT(google-explicit-constructor)
  /// In host memory, at most kHere; copied.
  explicit LaunchArray(std::span<const T> values) {
    TANDEM_CHECK(values.size() <= kHere, "{} values go with a launch, at most {}", values.size(), kHere);
    std::copy(values.begin(), values.end(), here_);
  }

  TANDEM_ON_BOTH const T& operator[](std::size_t i) const { return (far_ != nullptr ? far_ : here_)[i]; }

 private:
  const T* far_ = nullptr;
  T here_[kHere] = {};
};

}  // namespace tandem
