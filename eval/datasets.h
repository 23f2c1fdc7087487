// The datasets of `tandem eval`, in the order of its help.
#pragma once

#include <vector>

#include "eval/run/dataset_command.h"

// A line per dataset, whose folder defines <name>_entry().
#define TANDEM_DATASETS(DATASET) \
  DATASET(longbench)             \
  DATASET(leval)                 \
  DATASET(longproc)              \
  DATASET(reasoning)             \
  DATASET(needle)                \
  DATASET(perplexity)

namespace tandem::eval {

#define TANDEM_DECLARE(name) DatasetEntry name##_entry();
TANDEM_DATASETS(TANDEM_DECLARE)
#undef TANDEM_DECLARE

inline std::vector<DatasetEntry> datasets() {
#define TANDEM_LIST(name) name##_entry(),
  return {TANDEM_DATASETS(TANDEM_LIST)};
#undef TANDEM_LIST
}

}  // namespace tandem::eval
