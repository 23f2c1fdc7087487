// A row of a speculation and of its fetch, shared by bodies (partial_key_indexes.cc, fetch.cc) and GPU launches
// (launch.cc).
#pragma once

#include "engine/mechanisms/partial_key_index/partial_key_indexes.h"

namespace tandem {

struct PartialKeyIndexes::SpeculatingRow {
  std::uint32_t row = 0;
  PartialKeyIndex index;  // as it is now
  std::uint32_t most = 0;
  double alpha = 0;
  std::uint32_t request = 0;
};

struct PartialKeyIndexes::SpeculatedRow {
  PartialKeyIndex index;  // as it is now
  HostPages::List pages;
};

}  // namespace tandem
