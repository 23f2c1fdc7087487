// A part of a run, so that several processes or machines share one: each fills a folder of its own with some batches of
// the same run, and merge_runs() (eval/report/run_folder.h) puts them together.
#pragma once

#include <cstdint>

namespace tandem::eval {

struct Shard {
  std::uint32_t number = 1, of = 1;  // 1 .. of
  /// Batches in the run's order, from 0, dealt out in turn: as many to each as can be.
  bool has(std::uint64_t batch) const { return batch % of == number - 1; }
};

}  // namespace tandem::eval
