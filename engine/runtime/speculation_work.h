// A row of a speculation and of its fetch: shared by what plans them (speculation_ops.cc, speculated_fetch.cc) and
// their launches on a GPU (speculation_launch.cc).
#pragma once

#include "engine/runtime/engine_ops.h"

namespace tandem {

struct EngineOps::SpeculatingRow {
  std::uint32_t row = 0;
  SkewedIndex index;  // as it is now
  std::uint32_t most = 0;
  double alpha = 0;
  std::uint32_t request = 0;
};

struct EngineOps::SpeculatedRow {
  SkewedIndex index;  // as it is now
  HostPages::List pages;
};

}  // namespace tandem
